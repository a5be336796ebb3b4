"""Jobs over many prompts, and over many checkpoints."""
from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Union

import pyarrow
import ray
from ray.data import ActorPoolStrategy, Dataset
from ray.exceptions import RayError

import subbyte

from ._paths import absolute

Path = Union[str, "os.PathLike[str]"]
Pair = tuple[Path, Path]
Row = dict[str, Any]


# --- prompts

def answer(prompts: Dataset, model: Path, params: subbyte.SamplingParams | None = None, *,
           column: str = "messages", replicas: int = 1, batch_size: int = 64, cpus: float = 1,
           gpus: float = 0, **options: Any) -> Dataset:
    """Answers each row of a dataset; a Dataset with the columns of Answers beside those of prompts.

    prompts: its `column` has messages, or a text for each prompt where it is called otherwise.
    params: as for LLM.chat() and LLM.generate(). replicas: processes with the model, each of which
    has so many cpus and gpus and computes batch_size rows together. options: those of Engine.

    Rows come as they are computed. One that is refused has what is wrong in "error". Replicas leave
    processors of the cluster to the tasks that read and write rows.
    """
    device = options.pop("device", "cuda" if gpus else "cpu")
    options = {"device": device, "threads": max(1, int(cpus)), "max_sequences": batch_size,
               **options}
    return prompts.map_batches(
        Answers, fn_constructor_args=(absolute(model), options, params, column),
        batch_format="pyarrow", batch_size=batch_size, num_cpus=cpus, num_gpus=gpus,
        compute=ActorPoolStrategy(size=replicas))


class Answers:
    """A model that adds columns to batches of rows: "answer", "reasoning", "finish_reason",
    "prompt_tokens", "completion_tokens" and "error"."""

    COLUMNS = {"answer": pyarrow.string(), "reasoning": pyarrow.string(),
               "finish_reason": pyarrow.string(), "prompt_tokens": pyarrow.int64(),
               "completion_tokens": pyarrow.int64(), "error": pyarrow.string()}

    def __init__(self, model: str, options: dict[str, Any],
                 params: subbyte.SamplingParams | None, column: str) -> None:
        """Loads the model."""
        self._llm = subbyte.LLM(model, **options)
        self._params = params
        self._column = column

    def __call__(self, batch: pyarrow.Table) -> pyarrow.Table:
        """Answers the rows of a batch."""
        rows = self._rows(batch.column(self._column).to_pylist())
        for name, kind in self.COLUMNS.items():
            batch = batch.append_column(name, pyarrow.array([row[name] for row in rows], kind))
        return batch

    def _rows(self, prompts: list[Any]) -> list[Row]:
        """All together, or each alone where one of them is refused."""
        try:
            return self._compute(prompts)
        except subbyte.Error as error:
            if len(prompts) == 1:
                return [{**dict.fromkeys(self.COLUMNS), "error": str(error)}]
            return [row for prompt in prompts for row in self._rows([prompt])]

    def _compute(self, prompts: list[Any]) -> list[Row]:
        if self._column == "messages":
            chats = [[without_nulls(message) for message in chat] for chat in prompts]
            outputs = self._llm.chat(chats, self._params)
        else:
            outputs = self._llm.generate(prompts, self._params)
        return [row_of(output) for output in outputs]


def without_nulls(message: Mapping[str, Any]) -> Row:
    """A message without the fields that other rows of its table have."""
    return {name: value for name, value in message.items() if value is not None}


def row_of(output: subbyte.RequestOutput) -> Row:
    """The first sample of an answer."""
    sample = output.outputs[0]
    return {"answer": sample.text, "reasoning": sample.reasoning,
            "finish_reason": sample.finish_reason,
            "prompt_tokens": len(output.prompt_token_ids),
            "completion_tokens": len(sample.token_ids), "error": None}


# --- checkpoints

def quantize(pairs: Iterable[Pair], *, threads: int = 1, **options: Any) -> list[Row]:
    """Quantizes checkpoints: subbyte.quantize() with these options of each (source, destination).

    Each is a task with so many threads, on whichever machine has them; paths are those of that
    machine, so they are of a file system that all share. Returns rows in the order of pairs with
    "source", "destination", "report" and, where it failed, "error" and "code".
    """
    return _rows_of(subbyte.quantize, _named_pairs(pairs), threads, options)


def convert(pairs: Iterable[Pair], format: str, *, threads: int = 1, **options: Any) -> list[Row]:
    """Converts checkpoints: subbyte.convert() of each (source, destination), as quantize() does."""
    return _rows_of(subbyte.convert, _named_pairs(pairs), threads, {"format": format, **options})


def verify(models: Iterable[Path], *, threads: int = 1, **options: Any) -> list[Row]:
    """Verifies checkpoints: subbyte.verify() of each; rows with "model", "report", "error" and
    "code"."""
    named = [{"model": absolute(model)} for model in models]
    return _rows_of(subbyte.verify, named, threads, options)


def _named_pairs(pairs: Iterable[Pair]) -> list[dict[str, str]]:
    return [{"source": absolute(source), "destination": os.path.abspath(destination)}
            for source, destination in pairs]


def _rows_of(work: Callable[..., Row], named: list[dict[str, str]], threads: int,
             options: dict[str, Any]) -> list[Row]:
    """Runs a task for each, all at once as far as there are processors."""
    task = ray.remote(num_cpus=threads)(_row)
    started = [task.remote(work, paths, {**options, "threads": threads}) for paths in named]
    return [_result(paths, reference) for paths, reference in zip(named, started)]


def _row(work: Callable[..., Row], paths: dict[str, str], options: dict[str, Any]) -> Row:
    """Runs in a process of the cluster."""
    try:
        return {**paths, "report": work(**paths, **options), "error": None, "code": None}
    except subbyte.Error as error:
        return {**paths, "report": None, "error": str(error), "code": error.code}


def _result(paths: dict[str, str], reference: Any) -> Row:
    """The row of a task; one whose processes ended again and again has an error, too."""
    try:
        return ray.get(reference)
    except RayError as error:
        return {**paths, "report": None, "error": str(error), "code": "cluster.task"}
