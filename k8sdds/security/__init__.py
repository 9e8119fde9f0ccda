"""DDS Security: levels, credentials and signed documents, as the OMG specification wants them."""
