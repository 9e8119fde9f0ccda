"""A context of a kubeconfig → how to reach its cluster; what is wrong with it in words, never a traceback."""

from __future__ import annotations

import os
from pathlib import Path

import yaml
from kubernetes import client, config
from kubernetes.config.config_exception import ConfigException

from k8sdds.system.errors import InputError

OTHERS = "give another with --kubeconfig and --context; see: kubectl config get-contexts"


def read(kubeconfig: Path | None, context: str | None) -> client.Configuration:
    """The cluster and user of a context, by default those that kubectl takes. InputError for what is none."""
    given = str(kubeconfig) if kubeconfig else os.environ.get("KUBECONFIG") or "~/.kube/config"
    files = [Path(one).expanduser() for one in given.split(os.pathsep) if one]
    if not any(one.exists() for one in files):
        raise InputError(
            f"there is no kubeconfig {given}", "give one with --kubeconfig, or build a cluster: k8sdds deploy"
        )
    found = client.Configuration()
    try:
        known, now = config.list_kube_config_contexts(os.pathsep.join(map(str, files)))
        names = [str(one["name"]) for one in known]
        chosen = context if context is not None else now["name"]
        if chosen not in names:
            there = f"it has: {', '.join(names)}" if names else "it has none"
            raise InputError(f"{given} has no context {chosen!r} ({there})", "give another: --context NAME")
        _has_user(files, next(one for one in known if one["name"] == chosen))
        config.load_kube_config(
            os.pathsep.join(map(str, files)), chosen, client_configuration=found, persist_config=False
        )
    except (ConfigException, OSError, ValueError, yaml.YAMLError) as error:
        raise InputError(f"{given} cannot be used: {' '.join(str(error).split())}", OTHERS) from error
    except (TypeError, KeyError, AttributeError) as error:
        raise InputError(f"{given} is no kubeconfig", OTHERS) from error
    return found


def _has_user(files: list[Path], context: dict) -> None:
    """The client would go on without a user that is not there, and be refused as nobody."""
    wanted = context["context"].get("user")
    users = [
        one["name"]
        for path in files
        if path.exists()
        for one in yaml.safe_load(path.read_text(encoding="utf-8")).get("users") or ()
    ]
    if wanted is not None and wanted not in users:
        raise ValueError(f"context {context['name']!r} names the user {wanted!r}, and there is none")
