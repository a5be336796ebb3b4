"""llama.cpp as a server in this process (pip install xllamacpp)."""

import xllamacpp


def parameters_of(path, context):
    """Of a model that one thread computes, with so many positions; more may be set."""
    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(path)
    parameters.n_ctx = context
    parameters.n_parallel = 1
    parameters.n_gpu_layers = 0
    parameters.warmup = False
    parameters.cpuparams.n_threads = 1
    return parameters


def server_of(path, context):
    """Ends with its object."""
    return xllamacpp.Server(parameters_of(path, context))
