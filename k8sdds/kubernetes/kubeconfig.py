"""Load a context of a kubeconfig; raise InputError if it cannot be used."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import yaml
from kubernetes import client, config
from kubernetes.config.config_exception import ConfigException

from k8sdds.system import reading
from k8sdds.system.errors import InputError, PrerequisiteError

MAX_BYTES = 1024 * 1024
"""Largest kubeconfig."""
REMEDY = "select another one with --kubeconfig and --context; see: kubectl config get-contexts"


def load(kubeconfig: Path | None, context: str | None) -> client.Configuration:
    """Return the client configuration for a kubeconfig's context; None means the one that kubectl uses."""
    source = str(kubeconfig) if kubeconfig else os.environ.get("KUBECONFIG") or "~/.kube/config"
    files = [Path(name).expanduser() for name in source.split(os.pathsep) if name]
    if not any(path.exists() for path in files):
        raise InputError(
            f"kubeconfig {source} does not exist",
            "select another one with --kubeconfig, or create a cluster with: k8sdds deploy",
        )
    configuration = client.Configuration()
    try:
        for path in files:
            if path.exists():
                _require_small(reading.text(path, MAX_BYTES), str(path))
        contexts, current = config.list_kube_config_contexts(os.pathsep.join(map(str, files)))
        names = [str(entry["name"]) for entry in contexts]
        selected = context if context is not None else current["name"]
        if selected not in names:
            available = f"it has: {', '.join(names)}" if names else "it has no contexts"
            raise InputError(
                f"{source} has no context {selected!r} ({available})", "select another one: --context NAME"
            )
        _check_user(files, next(entry for entry in contexts if entry["name"] == selected))
        config.load_kube_config(
            os.pathsep.join(map(str, files)),
            selected,
            client_configuration=configuration,
            persist_config=False,
        )
    except (ConfigException, OSError, ValueError, yaml.YAMLError) as error:
        raise InputError(f"{source} cannot be used: {reading.one_line(str(error), 500)}", REMEDY) from error
    except reading.UnreadableError as error:
        raise InputError(f"{source} cannot be used: {error.message}", REMEDY) from error
    except (TypeError, LookupError, AttributeError, RecursionError) as error:
        raise InputError(f"{source} is not a kubeconfig", REMEDY) from error
    return configuration


def from_text(text: str, source: str) -> client.Configuration:
    """Return the client configuration for the current context of a kubeconfig that kubeadm wrote."""
    configuration = client.Configuration()
    try:
        config.load_kube_config_from_dict(
            yaml.safe_load(text), client_configuration=configuration, persist_config=False
        )
    except (ConfigException, ValueError, TypeError, yaml.YAMLError) as error:
        what = reading.one_line(str(error), 500)
        raise PrerequisiteError(
            f"{source}: its kubeconfig cannot be used: {what}",
            "write it again on this machine: kubeadm init phase kubeconfig admin",
        ) from error
    return configuration


def _require_small(text: str, source: str) -> None:
    """Raise ValueError for a text with aliases, which expand without bound, or with deep nesting."""
    depth = 0
    for event in yaml.parse(text, yaml.SafeLoader):
        if isinstance(event, yaml.AliasEvent):
            raise ValueError(f"{source}:{event.start_mark.line + 1}: aliases are not allowed")
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > reading.MAX_DEPTH:
            raise ValueError(f"{source} is nested more than {reading.MAX_DEPTH} levels deep")


def _check_user(files: list[Path], context: dict[str, Any]) -> None:
    """Raise ValueError if the context's user is not defined: the client library ignores this."""
    name = context["context"].get("user")
    users = [
        user["name"]
        for path in files
        if path.exists()
        for user in yaml.safe_load(path.read_text(encoding="utf-8")).get("users") or ()
    ]
    if name is not None and name not in users:
        raise ValueError(f"context {context['name']!r} refers to user {name!r}, which is not defined")
