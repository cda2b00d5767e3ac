"""The command ``workers-ai-emulator``."""

from __future__ import annotations

import argparse
import contextlib
import ipaddress
import os
import pathlib
import signal
import sys
import threading
from typing import TYPE_CHECKING

from workers_ai_emulator._version import __version__
from workers_ai_emulator.emulator import Emulator
from workers_ai_emulator.state.queue import QueueSettings
from workers_ai_emulator.state.upstream import Upstream

if TYPE_CHECKING:
    from collections.abc import Sequence

_ACCOUNT = "emulated-account"
_TOKEN = "emulated-token"
_KEY_VARIABLE = "WORKERS_AI_EMULATOR_UPSTREAM_KEY"


def argument_parser() -> argparse.ArgumentParser:
    """Return the argument parser of the command."""
    parser = argparse.ArgumentParser(
        prog="workers-ai-emulator", description="A local emulator of Cloudflare Workers AI. Unofficial."
    )
    parser.add_argument("--version", action="version", version=__version__)
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default %(default)s)")
    parser.add_argument("--allow-remote", action="store_true", help="allow a --host that other machines can reach")
    parser.add_argument("--port", type=int, default=8787, help="0 for a free port (default %(default)s)")
    parser.add_argument("--port-file", type=pathlib.Path, help="write the port to this file once it is open")
    parser.add_argument("--seed", type=int, default=0, help="seed of all random values")
    parser.add_argument("--latency", type=float, default=0.0, metavar="S", help="seconds that each request takes")
    parser.add_argument("--slots", type=int, help="requests that may run at once (default: no limit)")
    parser.add_argument("--max-wait", type=float, default=60.0, metavar="S", help="maximum seconds to wait for a slot")
    parser.add_argument("--token", action="append", metavar="T", help="accept only this API token (may be repeated)")
    parser.add_argument("--neurons-per-day", type=float, help="daily allocation (default: no limit)")
    parser.add_argument(
        "--quota-code", type=int, choices=(3036, 4006), default=4006, help="error code of an exhausted allocation"
    )
    parser.add_argument("--enforce-rpm", action="store_true", help="enforce the documented requests per minute")
    parser.add_argument("--free-plan", action="store_true", help="reject models that need the paid plan")
    parser.add_argument("--batch-polls", type=int, default=1, help="pending polls before a batch is done")
    parser.add_argument("--batch-seconds", type=float, help="seconds before a batch is done, instead of polls")
    parser.add_argument(
        "--upstream", metavar="URL", help="OpenAI-compatible server for the answers: base URL up to /v1"
    )
    parser.add_argument(
        "--upstream-key",
        default=os.environ.get(_KEY_VARIABLE),
        help=f"API key of the upstream (default: ${_KEY_VARIABLE})",
    )
    parser.add_argument("--upstream-model", help="model of the upstream for chat")
    parser.add_argument("--upstream-embedding-model", help="model of the upstream for embeddings")
    return parser


def build(arguments: argparse.Namespace) -> Emulator:
    """Return the emulator that the command-line arguments describe."""
    queue = QueueSettings(polls=arguments.batch_polls)
    if arguments.batch_seconds is not None:
        queue = QueueSettings(progress="seconds", seconds=arguments.batch_seconds)
    upstream = None
    if arguments.upstream:
        upstream = Upstream(
            arguments.upstream,
            arguments.upstream_model,
            arguments.upstream_embedding_model,
            api_key=arguments.upstream_key,
        )
    return Emulator(
        seed=arguments.seed,
        slots=arguments.slots,
        max_wait_s=arguments.max_wait,
        neurons_per_day=arguments.neurons_per_day,
        quota_code=arguments.quota_code,
        enforce_rpm=arguments.enforce_rpm,
        queue=queue,
        upstream=upstream,
        latency_s=arguments.latency,
        paid_plan=not arguments.free_plan,
        tokens=arguments.token,
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until interrupted. Return the exit status."""
    parser = argument_parser()
    arguments = parser.parse_args(argv)
    if not arguments.allow_remote and not _is_loopback(arguments.host):
        parser.error(f"--host {arguments.host} is reachable from other machines; add --allow-remote to allow this")
    try:
        server = build(arguments).serve(arguments.host, arguments.port).start()
    except OSError as error:
        where = f"{arguments.host}:{arguments.port}"
        print(f"workers-ai-emulator: cannot listen on {where} ({error}): use another --port", file=sys.stderr)
        return 1
    print(f"Workers AI emulator (not Cloudflare) at {server.base_url}")
    print(f"export CLOUDFLARE_BASE_URL={server.base_url}")
    print(f"export CLOUDFLARE_ACCOUNT_ID={_ACCOUNT}")
    print(f"export CLOUDFLARE_API_TOKEN={(arguments.token or [_TOKEN])[0]}", flush=True)
    if arguments.port_file is not None:
        arguments.port_file.write_text(str(server.port), encoding="ascii")
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    with contextlib.suppress(KeyboardInterrupt):
        stop.wait()
    server.stop()
    return 0


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
