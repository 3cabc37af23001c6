"""``tokenweir serve``: put admission control in front of an engine."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Annotated, Any

import typer

from tokenweir.core.errors import ConfigError
from tokenweir.core.policy import POLICIES
from tokenweir.profiles import PROFILE_NAMES, profile
from tokenweir.settings.compose import check_relations, mode_of
from tokenweir.settings.loading import load_settings, settings_from
from tokenweir.settings.model import Settings

__all__ = ["register"]

_DEFAULT_PORT = 8080
# What a person at a screen bears; a settings file says it for each pool, or says nothing.
_FIRST_TOKEN_SLO = "2s"
_EMBEDDED_PROFILE = "demo"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("serve")(serve)


def serve(
    config: Annotated[
        Path | None, typer.Option(help="Settings file; replaces all options but the listeners.")
    ] = None,
    upstream: Annotated[
        list[str] | None, typer.Option(help="Base URL of an engine; once per replica.")
    ] = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on [127.0.0.1].")] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65_535, help="Port to listen on, 0 for a free one.")
    ] = None,
    admin_port: Annotated[
        int | None,
        typer.Option(min=0, max=65_535, help="Loopback port for /metrics and /admin."),
    ] = None,
    policy: Annotated[str | None, typer.Option(help=f"One of: {', '.join(POLICIES)}.")] = None,
    profile_name: Annotated[
        str | None,
        typer.Option(
            "--profile", help=f"How fast the engines are: {', '.join(PROFILE_NAMES)}, or a file."
        ),
    ] = None,
    output_tokens_max: Annotated[
        int | None, typer.Option(min=1, help="Most output tokens a request may ask for [4096].")
    ] = None,
    first_token_slo: Annotated[
        str | None,
        typer.Option(help="Refuse what could not have its first token by then [2s]."),
    ] = None,
    observe: Annotated[
        bool, typer.Option("--observe", help="Decide and record, refuse nothing.")
    ] = False,
    bypass: Annotated[bool, typer.Option("--bypass", help="Let everything through.")] = False,
) -> None:
    """Forward OpenAI requests to a pool of engines, and admit, queue or refuse them.

    Without --config and --upstream an emulated engine is started and served.
    """
    logging.basicConfig(
        level=logging.WARNING, format="tokenweir: %(message)s", stream=sys.stderr, force=True
    )
    options = {
        "policy": policy,
        "profile": profile_name,
        "output_tokens_max": output_tokens_max,
        "first_token_slo": first_token_slo,
    }
    switches = {"observe": observe or None, "bypass": bypass or None}
    if config is not None:
        given = [f"--{name.replace('_', '-')}" for name, value in options.items() if value]
        if upstream or given:
            what = ", ".join([*(["--upstream"] if upstream else []), *given])
            raise ConfigError(f"{what} given beside --config {config}, allowed: one of the two")
        settings = load_settings(config)
        source = str(config)
    else:
        # The embedded engine's address is filled in when it has one.
        urls = upstream or ["http://127.0.0.1:1"]
        settings, source = _settings_of(urls, options), "command line"
    settings = _with_listeners(settings, host=host, port=port, admin_port=admin_port)
    settings = settings.model_copy(update={k: v for k, v in switches.items() if v is not None})
    check_relations(settings, source=source)
    _run(_serve(settings, is_embedded=config is None and not upstream))


async def _serve(settings: Settings, *, is_embedded: bool) -> None:
    from tokenweir.gateway.server import Gateway, bind

    _raise_file_limit()
    listener = bind(settings.listen.host, settings.listen.port)
    admin = settings.admin.listen
    admin_listener = None if admin is None else bind(admin.host, admin.port)
    stop_engine: Callable[[], Coroutine[Any, Any, None]] | None = None
    if is_embedded:
        from tokenweir.testing.engine_server import start_engine

        engine = await start_engine(profile(_EMBEDDED_PROFILE), host="127.0.0.1", port=0)
        stop_engine = engine.stop
        settings = _with_upstream(settings, engine.url)
    gateway = Gateway(settings, listener=listener, admin_listener=admin_listener)
    try:
        await gateway.serve(
            on_ready=lambda: _announce(
                settings, listener, admin_listener=admin_listener, is_embedded=is_embedded
            )
        )
    finally:
        if stop_engine is not None:
            await stop_engine()


def _settings_of(urls: list[str], options: dict[str, Any]) -> Settings:
    """Return settings as if they had been written in a file."""
    pool: dict[str, Any] = {"replicas": [{"url": url} for url in urls]}
    pool["first_token_slo"] = _FIRST_TOKEN_SLO
    named = ("policy", "profile", "first_token_slo")
    pool.update({k: options[k] for k in named if options[k] is not None})
    tree: dict[str, Any] = {"pools": [pool]}
    if options["output_tokens_max"] is not None:
        tree["routes"] = [{"output_tokens_max": options["output_tokens_max"]}]
    return settings_from(tree, source="command line")


def _with_listeners(
    settings: Settings, *, host: str | None, port: int | None, admin_port: int | None
) -> Settings:
    """Put the listeners of the command line over those of the file."""
    tree = settings.model_dump(include={"listen", "admin"})
    if host is not None:
        tree["listen"]["host"] = host
    if port is not None:
        tree["listen"]["port"] = port
    if admin_port is not None:
        tree["admin"]["listen"] = {**(tree["admin"]["listen"] or {}), "port": admin_port}
    checked = Settings.model_validate({**tree, "pools": settings.pools})
    return settings.model_copy(update={"listen": checked.listen, "admin": checked.admin})


def _with_upstream(settings: Settings, url: str) -> Settings:
    pool = settings.pools[0]
    replica = pool.replicas[0].model_copy(update={"url": url, "name": "embedded"})
    known = {"replicas": (replica,), "profile": _EMBEDDED_PROFILE}
    return settings.model_copy(update={"pools": (pool.model_copy(update=known),)})


def _announce(
    settings: Settings,
    listener: socket.socket,
    *,
    admin_listener: socket.socket | None,
    is_embedded: bool,
) -> None:
    """Say where it serves, and how to try it."""
    url = _url(listener)
    behind = ", ".join(replica.url for pool in settings.pools for replica in pool.replicas)
    model = "emulated" if is_embedded else "MODEL"
    lines = [f"tokenweir: serving on {url} -> {behind}"]
    mode = mode_of(settings).value
    for pool in settings.pools:
        profile_name = pool.profile or "not told"
        lines.append(
            f"tokenweir: {mode}, pool {pool.name}, policy {pool.policy}, profile {profile_name}"
        )
    if admin_listener is not None:
        lines.append(f"tokenweir: admin on {_url(admin_listener)}")
    if is_embedded:
        lines.append("tokenweir: the engine is emulated; --upstream URL serves a real one")
    lines += [
        "  try:",
        f"  curl -N {url}/v1/chat/completions -H 'content-type: application/json' -d \\",
        f'    \'{{"model":"{model}","messages":[{{"role":"user","content":"hello"}}],'
        '"max_tokens":32,"stream":true}\'',
    ]
    sys.stderr.write("\n".join(lines) + "\n")
    sys.stderr.flush()


def _raise_file_limit() -> None:
    """Allow as many open files as the system lets us: each stream needs two."""
    try:
        import resource
    except ImportError:
        return
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _url(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _run(main: Coroutine[Any, Any, None]) -> None:
    """Run on uvloop where it is installed."""
    try:
        import uvloop
    except ImportError:
        asyncio.run(main)
    else:
        uvloop.run(main)
