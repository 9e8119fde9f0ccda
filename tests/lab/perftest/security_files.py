"""Create authorities, certificates and signed documents with openssl."""

from __future__ import annotations

import subprocess
from pathlib import Path

XSD = "http://www.omg.org/spec/DDS-Security/20170801/omg_shared_ca_"

GOVERNANCE = """<?xml version="1.0" encoding="UTF-8"?>
<dds xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" xsi:noNamespaceSchemaLocation="{xsd}governance.xsd">
<domain_access_rules>
<domain_rule>
  <domains><id_range><min>0</min><max>230</max></id_range></domains>
  <allow_unauthenticated_participants>false</allow_unauthenticated_participants>
  <enable_join_access_control>true</enable_join_access_control>
  <discovery_protection_kind>{discovery}</discovery_protection_kind>
  <liveliness_protection_kind>{discovery}</liveliness_protection_kind>
  <rtps_protection_kind>{rtps}</rtps_protection_kind>
  <topic_access_rules>
    <topic_rule>
      <topic_expression>*</topic_expression>
      <enable_discovery_protection>true</enable_discovery_protection>
      <enable_liveliness_protection>true</enable_liveliness_protection>
      <enable_read_access_control>true</enable_read_access_control>
      <enable_write_access_control>true</enable_write_access_control>
      <metadata_protection_kind>{metadata}</metadata_protection_kind>
      <data_protection_kind>{data}</data_protection_kind>
    </topic_rule>
  </topic_access_rules>
</domain_rule>
</domain_access_rules>
</dds>
"""

PERMISSIONS = """<?xml version="1.0" encoding="UTF-8"?>
<dds xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" xsi:noNamespaceSchemaLocation="{xsd}permissions.xsd">
<permissions>
<grant name="grant">
  <subject_name>{subject}</subject_name>
  <validity><not_before>2020-01-01T00:00:00</not_before><not_after>{until}</not_after></validity>
  <allow_rule>
    <domains><id_range><min>0</min><max>230</max></id_range></domains>
    <publish><topics><topic>*</topic></topics></publish>
    <subscribe><topics><topic>*</topic></topics></subscribe>
  </allow_rule>
  <default>DENY</default>
</grant>
</permissions>
</dds>
"""


def openssl(*args: object) -> None:
    subprocess.run(["openssl", *map(str, args)], check=True, capture_output=True)


class Files:
    """Create a folder with two authorities and all files of a publisher and a subscriber."""

    def __init__(self, folder: Path, rtps="NONE", metadata="NONE", data="NONE", discovery="NONE") -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        for authority in ("identity", "permissions"):
            self._key(authority)
            openssl(
                *("req", "-x509", "-new", "-key", folder / f"{authority}.key", "-days", 30),
                *("-out", folder / f"{authority}.pem", "-subj", f"/O=k8sdds test/CN={authority}"),
            )
        text = GOVERNANCE.format(xsd=XSD, rtps=rtps, metadata=metadata, data=data, discovery=discovery)
        self.sign("governance", text)
        for name in ("pub", "sub"):
            self._key(name)
            self.certify(name)
            self.permit(name)

    def _key(self, name: str) -> None:
        path = self.folder / f"{name}.key"
        openssl("genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", path)
        path.chmod(0o600)

    def certify(self, name: str, days: int = 30) -> None:
        request = self.folder / f"{name}.csr"
        subject = f"/O=k8sdds test/CN={name}0"
        openssl("req", "-new", "-key", self.folder / f"{name}.key", "-subj", subject, "-out", request)
        # An extension makes it a certificate of version 3, which TLS requires.
        extension = self.folder / "extension"
        extension.write_text("basicConstraints=CA:FALSE\n")
        openssl(
            *("x509", "-req", "-in", request, "-CA", self.folder / "identity.pem", "-CAcreateserial"),
            *("-extfile", extension),
            *("-CAkey", self.folder / "identity.key", "-days", days, "-out", self.folder / f"{name}.pem"),
        )

    def permit(self, name: str, until: str = "2099-01-01T00:00:00", subject: str | None = None) -> None:
        subject = subject or f"CN={name}0,O=k8sdds test"
        self.sign(f"{name}-permissions", PERMISSIONS.format(xsd=XSD, subject=subject, until=until))

    def sign(self, name: str, text: str) -> None:
        plain = self.folder / f"{name}.xml"
        plain.write_text(text)
        openssl(
            *("smime", "-sign", "-text", "-in", plain, "-out", self.folder / f"{name}.p7s"),
            *("-signer", self.folder / "permissions.pem", "-inkey", self.folder / "permissions.key"),
        )

    def options(self, name: str, **other: object) -> list[object]:
        """Return the options for `pub` or `sub`, with some values replaced."""
        values = {
            "-secureGovernanceFile": self.folder / "governance.p7s",
            "-securePermissionsFile": self.folder / f"{name}-permissions.p7s",
            "-secureCertAuthority": self.folder / "identity.pem",
            "-securePermissionsAuthority": self.folder / "permissions.pem",
            "-secureCertFile": self.folder / f"{name}.pem",
            "-securePrivateKey": self.folder / f"{name}.key",
        } | {f"-{option}": value for option, value in other.items()}
        return [argument for pair in values.items() for argument in pair]
