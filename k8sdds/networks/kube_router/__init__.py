"""Kube-router."""
