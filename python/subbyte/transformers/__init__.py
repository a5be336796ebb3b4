"""Models of transformers 5 whose linear layers and experts are ours (docs/torch.md).

    import subbyte.transformers
    model = subbyte.transformers.load("path/of/a/checkpoint")
    model.generate(**tokenizer("The moor", return_tensors="pt"))

Importing it registers the quantization method "subbyte", so that from_pretrained takes the
configuration of config(), too.
"""

from ._modules import SubbyteExperts, SubbyteLinear
from ._quantizer import SubbyteConfig, SubbyteQuantizer, config, load

__all__ = ["SubbyteConfig", "SubbyteExperts", "SubbyteLinear", "SubbyteQuantizer", "config", "load"]
