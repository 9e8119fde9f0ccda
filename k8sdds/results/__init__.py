"""The run folder, the metrics table and the typed records that every analysis reads."""
