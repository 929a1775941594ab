"""Creates the tests' authorities and certificates, with the extensions of RFC 5280, which Python 3.13 requires."""

import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_DAY = datetime.timedelta(days=1)
_SIGNS = x509.KeyUsage(
    digital_signature=True,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=True,
    crl_sign=True,
    encipher_only=False,
    decipher_only=False,
)


def name(*attributes: tuple[x509.ObjectIdentifier, str]) -> x509.Name:
    """A distinguished name in certificate order: the most general attribute first."""
    return x509.Name([x509.NameAttribute(kind, value) for kind, value in attributes])


def common_name(text: str) -> x509.Name:
    """`O=Example,CN=text`."""
    return name((NameOID.ORGANIZATION_NAME, "Example"), (NameOID.COMMON_NAME, text))


@dataclass(frozen=True, slots=True)
class Files:
    """The files of one identity: `keystore` has the key and the chain in one PEM file; `key` and `certificate` are
    separate."""

    keystore: Path
    key: Path
    certificate: Path


class Authority:
    """A certificate authority; `file` has its own certificate."""

    def __init__(self, folder: Path, title: str = "authority") -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = common_name(title)
        self.file = folder / f"{title}.pem"
        own = self._builder(self._name, self._key.public_key()).add_extension(
            x509.BasicConstraints(ca=True, path_length=None), critical=True
        )
        own = own.add_extension(_SIGNS, critical=True)
        self._certificate = own.sign(self._key, hashes.SHA256())
        self.file.write_bytes(self._certificate.public_bytes(serialization.Encoding.PEM))

    def issue(self, title: str, subject: x509.Name | None = None, password: str | None = None) -> Files:
        """Returns a certificate for localhost and 127.0.0.1 with the name `title`; `password` encrypts its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        names: list[x509.GeneralName] = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        certificate = (
            self._builder(subject or common_name(title), key.public_key())
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        encryption: serialization.KeySerializationEncryption = serialization.NoEncryption()
        if password is not None:
            encryption = serialization.BestAvailableEncryption(password.encode())
        key_bytes = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)
        chain = certificate.public_bytes(serialization.Encoding.PEM) + self.file.read_bytes()
        files = Files(*(self._folder / f"{title}.{kind}.pem" for kind in ("keystore", "key", "certificate")))
        files.keystore.write_bytes(key_bytes + chain)
        files.key.write_bytes(key_bytes)
        files.certificate.write_bytes(chain)
        return files

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _DAY)
            .not_valid_after(now + _DAY)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
        )
