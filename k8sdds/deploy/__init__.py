"""Deploy a profile on machines: gather facts, plan, apply."""
