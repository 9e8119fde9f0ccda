"""DDS Security: protection levels, credentials and signed documents as the OMG specification defines them."""

# Names of the files that a participant needs.
IDENTITY_CA = "identity_ca.pem"
PERMISSIONS_CA = "permissions_ca.pem"
CERTIFICATE = "certificate.pem"
KEY = "key.pem"
PERMISSIONS = "permissions.p7s"
GOVERNANCE = "governance.p7s"
