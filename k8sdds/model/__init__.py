"""Define experiments, profiles and trials as pure data: no module starts a process or opens a file."""
