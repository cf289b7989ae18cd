"""Issue the certificates of a test cluster with an authority of its own."""

import datetime
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

VALID = datetime.timedelta(days=2)


class Authority:
    """A certificate authority that writes NAME.crt and NAME.key into a folder; its own certificate is ca.crt."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(mode=0o700)
        self._key = write_key(folder / "ca.key")
        self._name = _name("tfopt test cluster")
        usage = x509.BasicConstraints(ca=True, path_length=None)
        self._write("ca", self._builder(self._name, self._key).add_extension(usage, critical=True))

    def issue(self, name: str, user: str, group: str | None = None, hosts: tuple[str, ...] = ()) -> None:
        """Issue a certificate for a user of the API, or for a server with these names and addresses."""
        key = write_key(self.folder / f"{name}.key")
        usages = [ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH]
        builder = self._builder(_name(user, group), key)
        builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        if hosts:
            builder = builder.add_extension(
                x509.SubjectAlternativeName([_host(host) for host in hosts]), critical=False
            )
        self._write(name, builder)

    def _builder(self, subject: x509.Name, key: rsa.RSAPrivateKey) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        builder = x509.CertificateBuilder(self._name, subject, key.public_key(), x509.random_serial_number())
        return builder.not_valid_before(now - datetime.timedelta(hours=1)).not_valid_after(now + VALID)

    def _write(self, name: str, builder: x509.CertificateBuilder) -> None:
        signed = builder.sign(self._key, hashes.SHA256())
        (self.folder / f"{name}.crt").write_bytes(signed.public_bytes(serialization.Encoding.PEM))


def write_key(file: Path) -> rsa.RSAPrivateKey:
    """Write a private key, and its public key as FILE.pub."""
    key = rsa.generate_private_key(65537, 2048)
    pem = serialization.Encoding.PEM
    file.touch(0o600)
    file.write_bytes(
        key.private_bytes(pem, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption())
    )
    public = key.public_key().public_bytes(pem, serialization.PublicFormat.SubjectPublicKeyInfo)
    file.with_suffix(".pub").write_bytes(public)
    return key


def _name(user: str, group: str | None = None) -> x509.Name:
    names = [x509.NameAttribute(NameOID.COMMON_NAME, user)]
    return x509.Name([x509.NameAttribute(NameOID.ORGANIZATION_NAME, group), *names] if group else names)


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
