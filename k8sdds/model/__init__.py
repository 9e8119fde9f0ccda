"""Pure data: what the user writes and what follows from it. Imports nothing else of k8sdds but errors."""
