"""Plan the changes of machines, phase by phase: functions of the desired state and a node that return its actions."""
