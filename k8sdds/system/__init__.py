"""Access to this machine and others: processes, namespaces, cgroups, SSH, files, errors."""
