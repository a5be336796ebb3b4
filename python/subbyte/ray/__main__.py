"""`python -m subbyte.ray`: an application of Ray Serve, and jobs over many checkpoints."""
from __future__ import annotations

import argparse
import ipaddress
import json
import os
import shlex
import signal
import sys
import threading
from pathlib import Path

import ray
from pydantic import ValidationError
from ray import serve
from ray.serve.config import HTTPOptions
from ray.serve.exceptions import RayServeException
from ray.serve.schema import ServeStatus

from subbyte import SamplingParams
from subbyte.ray import Settings, answer, application, convert, quantize, verify

EXAMPLES = """examples:
  python -m subbyte.ray serve ./model --replicas 3
  python -m subbyte.ray serve ./model --replicas 2 --max-replicas 8 --gpus 1 -- --parallel 64
  python -m subbyte.ray answer ./model questions.jsonl answers --replicas 4
  python -m subbyte.ray quantize models/* --to small --format awq
  python -m subbyte.ray convert models/* --to converted --format gptq
  python -m subbyte.ray verify models/*

It joins the cluster of --address or RAY_ADDRESS or that runs on this machine, and starts one of
this machine alone where there is none. docs/cluster.md is the manual."""
KEYS = {"--api-key", "--api-key-file", "--allow-open"}


def add_serve(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """`serve`: everything after -- goes to `subbyte serve`."""
    command = commands.add_parser(
        "serve", help="replicas of `subbyte serve` at one address",
        epilog="Options of `subbyte serve` follow after --.")
    command.add_argument("model", help="directory, file or org/name, on every machine")
    command.add_argument("--host", default="127.0.0.1", help="address to listen on [%(default)s]")
    command.add_argument("--port", type=int, default=8000, help="[%(default)s]")
    command.add_argument("--name", default="subbyte", help="of the application [%(default)s]")
    command.add_argument("--route", default="/", help="that paths begin with [%(default)s]")
    command.add_argument("--replace", action="store_true",
                         help="an application of that name may be there; where the new one does "
                              "not start, none is left")
    command.add_argument("--every-node", action="store_true",
                         help="listen on every machine that has a replica, not on one")
    command.add_argument("--detach", action="store_true",
                         help="return when it is ready; `serve shutdown` ends all applications")
    for name, field in Settings.model_fields.items():
        if name not in ("model", "options"):
            command.add_argument("--" + name.replace("_", "-"), type=field.annotation,
                                 default=field.default,
                                 help=f"{field.description} [{field.default}]")
    command.set_defaults(run=run_serve)


def run_serve(arguments: argparse.Namespace, options: list[str]) -> int:
    """Serves until a signal comes."""
    given = {word.partition("=")[0] for word in options}
    if not is_local(arguments.host) and not KEYS & given:
        return refuse(f"--host {arguments.host} lets other machines ask: give --api-key-file FILE "
                      "after --, or --allow-open if everybody may")
    try:
        settings = Settings(options=shlex.join(options), **{
            name: getattr(arguments, name) for name in Settings.model_fields if name != "options"})
    except ValidationError as error:
        [wrong, *_] = error.errors()
        return refuse(f"--{str(wrong['loc'][0]).replace('_', '-')}: {wrong['msg']}")
    ray.init(address=arguments.address, log_to_driver=not arguments.detach)
    there = serve.status()
    place = place_of_serve()
    if problem := conflict(arguments, place, there):
        return refuse(problem)
    is_alone = not (place or there.proxies or there.applications)
    signal.signal(signal.SIGTERM, interrupt)  # Ray has one that ends at once
    return serve_until_signal(arguments, settings, is_alone)


def serve_until_signal(arguments: argparse.Namespace, settings: Settings, is_alone: bool) -> int:
    """Runs the application, and ends it afterwards: with Serve, if that began here."""
    status, is_there = 0, True
    try:
        serve.start(proxy_location="EveryNode" if arguments.every_node else "HeadOnly",
                    http_options={"host": arguments.host, "port": arguments.port})
        serve.run(application(settings), name=arguments.name, route_prefix=arguments.route)
        route = arguments.route.rstrip("/")
        print(f"ready on http://{arguments.host}:{arguments.port}{route}", file=sys.stderr,
              flush=True)
        if arguments.detach:
            return 0
        threading.Event().wait()
    except KeyboardInterrupt:
        pass
    except (RayServeException, ValueError) as error:  # refused, before anything has changed
        status, is_there = refuse(str(getattr(error, "cause", error))), False
    except RuntimeError as error:  # the replicas did not start
        status = refuse(str(error), 1)
    if is_alone:
        serve.shutdown()
    elif is_there:
        serve.delete(arguments.name)
    return status


def place_of_serve() -> HTTPOptions | None:
    """Where the Serve that runs listens; None where none runs, or where this Ray does not say."""
    try:  # nothing public says it
        from ray.serve.context import _get_global_client
        client = _get_global_client(raise_if_no_controller_running=False)
        return client.http_config if client else None
    except (ImportError, AttributeError, TypeError):
        return None


def refuse(message: str, status: int = 2) -> int:
    """Says why nothing is done, and returns the exit code."""
    print(f"subbyte.ray: {message}", file=sys.stderr)
    return status


def conflict(arguments: argparse.Namespace, place: HTTPOptions | None, there: ServeStatus) -> str:
    """What keeps an application from a Serve that runs already; "" if nothing does."""
    if place and (place.host, place.port) != (arguments.host, arguments.port):
        return (f"Serve listens on {place.host}:{place.port} on this cluster: give --host "
                f"{place.host} --port {place.port}")
    if arguments.name in there.applications and not arguments.replace:
        return f"an application {arguments.name} runs on this cluster: give another --name and " \
               "--route, or --replace"
    return ""


def interrupt(*_: object) -> None:
    """Ends what waits, as Ctrl-C does."""
    raise KeyboardInterrupt


def is_local(host: str) -> bool:
    """Whether an address is of this machine alone."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def add_answer(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """`answer`: a file of prompts to a folder of answers."""
    command = commands.add_parser("answer", help="answer the rows of a file of JSON lines")
    command.add_argument("model")
    command.add_argument("source", help="JSON lines with a column of messages or of texts")
    command.add_argument("destination", help="folder for files of JSON lines, one a block of rows")
    command.add_argument("--column", default="messages", help="[%(default)s]")
    command.add_argument("--replicas", type=int, default=1, help="[%(default)s]")
    command.add_argument("--batch-size", type=int, default=64, help="[%(default)s]")
    command.add_argument("--max-tokens", type=int, help="of an answer")
    command.add_argument("--cpus", type=float, default=1, help="of each replica [%(default)s]")
    command.add_argument("--gpus", type=float, default=0, help="of each replica [%(default)s]")
    command.set_defaults(run=run_answer)


def run_answer(arguments: argparse.Namespace, _: list[str]) -> int:
    """Writes the answers."""
    ray.init(address=arguments.address)
    prompts = ray.data.read_json(os.path.abspath(arguments.source), lines=True)
    params = SamplingParams(max_tokens=arguments.max_tokens) if arguments.max_tokens else None
    answer(prompts, arguments.model, params, column=arguments.column, replicas=arguments.replicas,
           batch_size=arguments.batch_size, cpus=arguments.cpus,
           gpus=arguments.gpus).write_json(os.path.abspath(arguments.destination))
    return 0


def add_jobs(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """`quantize`, `convert` and `verify`: a task for each checkpoint."""
    for name, title in (("quantize", "round checkpoints of 16 or 32 bits to few"),
                        ("convert", "write the same weights in another format"),
                        ("verify", "list what is wrong with checkpoints")):
        command = commands.add_parser(name, help=title)
        command.add_argument("models", nargs="+", metavar="MODEL")
        command.add_argument("--threads", type=int, default=1, help="of each task [%(default)s]")
        if name != "verify":
            command.add_argument("--to", type=Path, required=True, metavar="FOLDER",
                                 help="each is written under its own name there")
            command.add_argument("--format", required=True)
            command.add_argument("--allow-lossy", action="store_true")
        if name == "quantize":
            command.add_argument("--bits", type=float)
            command.add_argument("--group-size", type=int)
        command.set_defaults(run=run_job)


def run_job(arguments: argparse.Namespace, _: list[str]) -> int:
    """Prints a line of JSON for each checkpoint; 1 where one of them failed or has errors."""
    names = [Path(model).name for model in arguments.models]
    if arguments.command != "verify" and len(set(names)) < len(names):
        return refuse("--to: two models have one name, and would be written to one directory")
    ray.init(address=arguments.address, log_to_driver=False, logging_level="warning")
    if arguments.command == "verify":
        rows = verify(arguments.models, threads=arguments.threads)
    else:
        work = quantize if arguments.command == "quantize" else convert
        taken = ("format", "bits", "group_size", "threads", "allow_lossy")
        options = {name: value for name, value in vars(arguments).items() if name in taken}
        rows = work(list(zip(arguments.models, (arguments.to / name for name in names))),
                    **options)
    for row in rows:
        print(json.dumps(row))
    return int(any(row["error"] or row["report"].get("errors") for row in rows))


def parser() -> argparse.ArgumentParser:
    """The whole command line."""
    whole = argparse.ArgumentParser(prog="python -m subbyte.ray", description=__doc__,
                                    epilog=EXAMPLES,
                                    formatter_class=argparse.RawDescriptionHelpFormatter)
    whole.add_argument("--address", help="of a cluster of Ray")
    commands = whole.add_subparsers(dest="command", required=True)
    for add in (add_serve, add_answer, add_jobs):
        add(commands)
    return whole


def main(words: list[str]) -> int:
    """Runs the command line and returns its exit code."""
    split = words.index("--") if "--" in words else len(words)
    arguments = parser().parse_args(words[:split])
    options = words[split + 1:]
    if options and arguments.command != "serve":
        return refuse("-- is for the options of `subbyte serve`")
    return int(arguments.run(arguments, options))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
