"""Build the shell script that gathers facts on a machine. It prints lines of the form `key<tab>value`."""

from __future__ import annotations

from k8sdds import versions
from k8sdds.deploy.actions import CACHE_FOLDER, HASHES
from k8sdds.deploy.scripts import shell

MARKER = "/etc/k8sdds/cluster"
"""File with the name of the cluster that a machine belongs to."""

# Prints targets of symbolic links and hashes of other files. Deploy records the hash of each installed file with its
# inode, size and times; a file for which these are unchanged is not read again.
FILE_HASHES = shell("file_hashes", HASHES=HASHES)

# The script makes no changes, except that probing a kernel feature, in a temporary network namespace, may load
# its module.
_BEGIN = shell("facts_begin")

_MACHINE = shell("machine_facts", FILE_HASHES=FILE_HASHES)

OBJECTS = (
    "namespaces,serviceaccounts,configmaps,secrets,services,daemonsets.apps,deployments.apps,statefulsets.apps,"
    "poddisruptionbudgets.policy,networkpolicies.networking.k8s.io,priorityclasses.scheduling.k8s.io,"
    "clusterroles.rbac.authorization.k8s.io,clusterrolebindings.rbac.authorization.k8s.io,"
    "roles.rbac.authorization.k8s.io,rolebindings.rbac.authorization.k8s.io,apiservices.apiregistration.k8s.io,"
    "customresourcedefinitions.apiextensions.k8s.io"
)
"""Kinds of objects that k8sdds creates on a cluster."""

# Runs on the control plane and prints what the API server reports. Of Secrets it prints the names only.
CLUSTER = shell(
    "cluster_facts", SELECTOR=f"{versions.MANAGED_BY_LABEL}={versions.MANAGED_BY}", OBJECTS=OBJECTS, FOLDER=CACHE_FOLDER
)  # fmt: skip


def script(
    names: tuple[str, ...] = (), sysctls: tuple[str, ...] = (), files: tuple[str, ...] = (), extra: str = ""
) -> str:
    """Return the script. It resolves `names`, reads `sysctls`, hashes `files`, and runs `extra` at the same time."""
    variables = {"NAMES": names, "SYSCTLS": sysctls, "FILES": files}
    assignments = "".join(f"{key}='{' '.join(values)}'\n" for key, values in variables.items())
    # The additional script writes to a file, so that the lines of the two do not mix; in memory, since a disk may
    # be full.
    begin = (
        "work=$(mktemp -d -p /run) || exit 1\ntrap 'rm -rf $work' EXIT\ntrap 'exit 1' HUP PIPE TERM\n"
        f"(\n:\n{extra}\n) >$work/extra &\n"
    )
    end = 'wait\ncat $work/extra\nsay ended "$(date +%s.%N)"\n'
    return assignments + _BEGIN + begin + _MACHINE + end
