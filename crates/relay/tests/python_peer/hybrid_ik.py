"""An independent implementation of the hybrid-IK handshake and its records, for one live conversation over pipes.

It shares no code with the crate, and needs nothing but the standard library, so that every machine with Python can run
it: ML-KEM-768 follows FIPS 203, X25519 follows RFC 7748, AES-256-GCM follows FIPS 197 and NIST SP 800-38D. It is slow,
its time depends on secrets, and it must never be used for anything but tests.

Arguments: role (harness or executor), environment, registration and stream. All bytes are lines of hexadecimal digits.
Start reading at `harness` and `executor` at the end: they are the conversation.
"""

import hashlib
import hmac
import os
import struct
import sys

# ML-KEM-768

Q, K, ETA, DU, DV = 3329, 3, 2, 10, 4


def reversed_bits(i):
    return int(f"{i:07b}"[::-1], 2)


ZETAS = [pow(17, reversed_bits(i), Q) for i in range(128)]
GAMMAS = [pow(17, 2 * reversed_bits(i) + 1, Q) for i in range(128)]


def ntt(f):
    f, i, length = f[:], 1, 128
    while length >= 2:
        for start in range(0, 256, 2 * length):
            zeta, i = ZETAS[i], i + 1
            for j in range(start, start + length):
                t = zeta * f[j + length] % Q
                f[j], f[j + length] = (f[j] + t) % Q, (f[j] - t) % Q
        length //= 2
    return f


def inverse_ntt(f):
    f, i, length = f[:], 127, 2
    while length <= 128:
        for start in range(0, 256, 2 * length):
            zeta, i = ZETAS[i], i - 1
            for j in range(start, start + length):
                t = f[j]
                f[j], f[j + length] = (t + f[j + length]) % Q, zeta * (f[j + length] - t) % Q
        length *= 2
    return [x * 3303 % Q for x in f]


def multiply(a, b):
    c = []
    for i in range(128):
        a0, a1, b0, b1 = a[2 * i], a[2 * i + 1], b[2 * i], b[2 * i + 1]
        c += [(a0 * b0 + a1 * b1 * GAMMAS[i]) % Q, (a0 * b1 + a1 * b0) % Q]
    return c


def add(a, b):
    return [(x + y) % Q for x, y in zip(a, b)]


def dot(row, vector):
    total = [0] * 256
    for a, b in zip(row, vector):
        total = add(total, multiply(a, b))
    return total


def pack(f, bits):
    return sum(x << (bits * i) for i, x in enumerate(f)).to_bytes(32 * bits, "little")


def unpack(data, bits):
    number = int.from_bytes(data, "little")
    return [(number >> (bits * i)) & ((1 << bits) - 1) for i in range(256)]


def compress(f, bits):
    return [((x << bits) + Q // 2) // Q % (1 << bits) for x in f]


def decompress(f, bits):
    return [(x * Q + (1 << (bits - 1))) >> bits for x in f]


def uniform(seed):
    stream, f, i = hashlib.shake_128(seed).digest(1800), [], 0
    while len(f) < 256:
        b0, b1, b2 = stream[i : i + 3]
        i += 3
        f += [x for x in (b0 + 256 * (b1 % 16), b1 // 16 + 16 * b2) if x < Q]
    return f[:256]


def small(seed, number):
    data = hashlib.shake_256(seed + bytes([number])).digest(64 * ETA)
    bits = [(byte >> i) & 1 for byte in data for i in range(8)]
    pieces = [bits[i : i + 2 * ETA] for i in range(0, len(bits), 2 * ETA)]
    return [(sum(piece[:ETA]) - sum(piece[ETA:])) % Q for piece in pieces]


def matrix(rho):
    return [[uniform(rho + bytes([j, i])) for j in range(K)] for i in range(K)]


def kem_generate():
    d, z = os.urandom(32), os.urandom(32)
    seeds = hashlib.sha3_512(d + bytes([K])).digest()
    rho, sigma = seeds[:32], seeds[32:]
    s = [ntt(small(sigma, n)) for n in range(K)]
    e = [ntt(small(sigma, K + n)) for n in range(K)]
    t = [add(dot(row, s), noise) for row, noise in zip(matrix(rho), e)]
    public = b"".join(pack(x, 12) for x in t) + rho
    return b"".join(pack(x, 12) for x in s) + public + hashlib.sha3_256(public).digest() + z, public


def pke_encrypt(public, message, seed):
    t = [unpack(public[384 * i : 384 * (i + 1)], 12) for i in range(K)]
    rows = matrix(public[384 * K :])
    y = [ntt(small(seed, n)) for n in range(K)]
    u = [
        add(inverse_ntt(dot([rows[j][i] for j in range(K)], y)), small(seed, K + i)) for i in range(K)
    ]
    v = add(add(inverse_ntt(dot(t, y)), small(seed, 2 * K)), decompress(unpack(message, 1), 1))
    return b"".join(pack(compress(x, DU), DU) for x in u) + pack(compress(v, DV), DV)


def kem_encapsulate(public):
    message = os.urandom(32)
    secrets = hashlib.sha3_512(message + hashlib.sha3_256(public).digest()).digest()
    return pke_encrypt(public, message, secrets[32:]), secrets[:32]


def kem_decapsulate(secret, ciphertext):
    public, public_hash, z = secret[1152:2336], secret[2336:2368], secret[2368:]
    s = [unpack(secret[384 * i : 384 * (i + 1)], 12) for i in range(K)]
    u = [decompress(unpack(ciphertext[320 * i : 320 * (i + 1)], DU), DU) for i in range(K)]
    v = decompress(unpack(ciphertext[960:], DV), DV)
    product = inverse_ntt(dot(s, [ntt(x) for x in u]))
    message = pack(compress([(a - b) % Q for a, b in zip(v, product)], 1), 1)
    secrets = hashlib.sha3_512(message + public_hash).digest()
    if pke_encrypt(public, message, secrets[32:]) == ciphertext:
        return secrets[:32]
    return hashlib.shake_256(z + ciphertext).digest(32)


# X25519

P = 2**255 - 19


def x25519(scalar, point):
    clamped = bytearray(scalar)
    clamped[0] &= 248
    clamped[31] = clamped[31] & 127 | 64
    k, u = int.from_bytes(clamped, "little"), int.from_bytes(point, "little") % 2**255
    x2, z2, x3, z3, swap = 1, 0, u, 1, 0
    for bit in reversed(range(255)):
        if swap != (k >> bit) & 1:
            x2, x3, z2, z3, swap = x3, x2, z3, z2, 1 - swap
        a, b, c, d = x2 + z2, x2 - z2, x3 + z3, x3 - z3
        da, cb, aa, bb = d * a % P, c * b % P, a * a % P, b * b % P
        x3, z3 = (da + cb) ** 2 % P, u * (da - cb) ** 2 % P
        x2, z2 = aa * bb % P, (aa - bb) * (aa + 121665 * (aa - bb)) % P
    if swap:
        x2, z2 = x3, z3
    return (x2 * pow(z2, P - 2, P) % P).to_bytes(32, "little")


def dh_generate():
    secret = os.urandom(32)
    return secret, x25519(secret, (9).to_bytes(32, "little"))


# AES-256-GCM


def field_multiply(a, b):
    product = 0
    while b:
        if b & 1:
            product ^= a
        a = a << 1 ^ (0x11B if a & 0x80 else 0)
        b >>= 1
    return product


def substitution(x):
    inverse = next((y for y in range(256) if field_multiply(x, y) == 1), 0)
    rotated = [(inverse << i | inverse >> (8 - i)) & 0xFF for i in range(5)]
    return rotated[0] ^ rotated[1] ^ rotated[2] ^ rotated[3] ^ rotated[4] ^ 0x63


SBOX = [substitution(x) for x in range(256)]
DOUBLED = [field_multiply(x, 2) for x in range(256)]


def round_keys(key):
    words, constant = [list(key[i : i + 4]) for i in range(0, 32, 4)], 1
    for i in range(8, 60):
        word = words[-1]
        if i % 8 == 0:
            word = [SBOX[x] for x in word[1:] + word[:1]]
            word[0] ^= constant
            constant = DOUBLED[constant]
        elif i % 8 == 4:
            word = [SBOX[x] for x in word]
        words.append([a ^ b for a, b in zip(words[-8], word)])
    return [sum(words[i : i + 4], []) for i in range(0, 60, 4)]


def aes_block(keys, block):
    state = [a ^ b for a, b in zip(block, keys[0])]
    for number, key in enumerate(keys[1:], 1):
        state = [SBOX[state[(i + 4 * (i % 4)) % 16]] for i in range(16)]
        if number < 14:
            mixed = []
            for column in range(0, 16, 4):
                c = state[column : column + 4]
                whole = c[0] ^ c[1] ^ c[2] ^ c[3]
                mixed += [c[i] ^ whole ^ DOUBLED[c[i] ^ c[(i + 1) % 4]] for i in range(4)]
            state = mixed
        state = [a ^ b for a, b in zip(state, key)]
    return bytes(state)


def hash_multiply(x, y):
    product = 0
    for bit in reversed(range(128)):
        if x >> bit & 1:
            product ^= y
        y = y >> 1 ^ (0xE1 << 120 if y & 1 else 0)
    return product


def padded(data):
    return data + bytes(-len(data) % 16)


def gcm(key, counter, data, associated, ciphertext_of):
    """The result of the counter mode for `data`, and the tag over the ciphertext that `ciphertext_of` picks."""
    keys, nonce = round_keys(key), bytes(4) + struct.pack(">Q", counter)
    pad = b"".join(aes_block(keys, nonce + struct.pack(">I", 2 + i)) for i in range(-(-len(data) // 16)))
    result = bytes(a ^ b for a, b in zip(data, pad))
    ciphertext = ciphertext_of(data, result)
    lengths = struct.pack(">QQ", 8 * len(associated), 8 * len(ciphertext))
    hashed, total, y = padded(associated) + padded(ciphertext) + lengths, 0, aes_block(keys, bytes(16))
    for i in range(0, len(hashed), 16):
        total = hash_multiply(total ^ int.from_bytes(hashed[i : i + 16], "big"), int.from_bytes(y, "big"))
    mask = int.from_bytes(aes_block(keys, nonce + struct.pack(">I", 1)), "big")
    return result, (total ^ mask).to_bytes(16, "big")


def seal(key, counter, text, associated=b""):
    ciphertext, tag = gcm(key, counter, text, associated, lambda _, result: result)
    return ciphertext + tag


class Refused(Exception):
    """Bytes of the peer are altered, or are for another key or another stream."""


def open_sealed(key, counter, sealed, associated=b""):
    text, tag = gcm(key, counter, sealed[:-16], associated, lambda data, _: data)
    if not hmac.compare_digest(tag, sealed[-16:]):
        raise Refused
    return text


# Noise


class Transcript:
    """The hash, the chaining key and the cipher of one end."""

    def __init__(self, prologue, executor_keys):
        self.hash = hashlib.sha256(b"Noise_hybridIK_25519+MLKEM768_AESGCM_SHA256").digest()
        self.chaining_key, self.key, self.counter = self.hash, None, 0
        for part in (prologue, *executor_keys):
            self.mix_hash(part)

    def mix_hash(self, data):
        self.hash = hashlib.sha256(self.hash + data).digest()

    def derive(self, material, count):
        first, previous, results = hmac.digest(self.chaining_key, material, "sha256"), b"", []
        for number in range(1, count + 1):
            previous = hmac.digest(first, previous + bytes([number]), "sha256")
            results.append(previous)
        return results

    def mix_key(self, secret):
        self.chaining_key, self.key = self.derive(secret, 2)
        self.counter = 0

    def mix_key_and_hash(self, secret):
        self.chaining_key, hashed, self.key = self.derive(secret, 3)
        self.mix_hash(hashed)
        self.counter = 0

    def encrypt(self, text):
        sealed = text if self.key is None else seal(self.key, self.next_counter(), text, self.hash)
        self.mix_hash(sealed)
        return sealed

    def decrypt(self, sealed):
        text = sealed if self.key is None else open_sealed(self.key, self.next_counter(), sealed, self.hash)
        self.mix_hash(sealed)
        return text

    def next_counter(self):
        self.counter += 1
        return self.counter - 1


def binding(environment, registration, stream):
    parts = ["codex-exec-server-relay-noise/v1", environment, registration, stream]
    return b"".join(struct.pack(">Q", len(part.encode())) + part.encode() for part in parts)


# The conversation


def say(data):
    print(data.hex(), flush=True)


def hear():
    return bytes.fromhex(sys.stdin.readline())


def exchange_records(sending, receiving):
    """Sends two records, and then everything that it receives until the empty line, reversed."""
    say(seal(sending, 0, b"first record of python"))
    say(seal(sending, 1, b""))
    received = 0
    while record := hear():
        say(seal(sending, 2 + received, open_sealed(receiving, received, record)[::-1]))
        received += 1


def harness(prologue):
    """Hears both keys of the executor and the authorization, and begins."""
    executor_dh, executor_kem, authorization = hear(), hear(), hear()
    (dh, dh_public), (kem, kem_public) = dh_generate(), kem_generate()
    (ephemeral, ephemeral_public), (ephemeral_kem, ephemeral_kem_public) = dh_generate(), kem_generate()
    noise = Transcript(prologue, (executor_dh, executor_kem))
    ciphertext, secret = kem_encapsulate(executor_kem)
    message = noise.encrypt(ciphertext)
    noise.mix_key_and_hash(secret)
    message += ephemeral_public + ephemeral_kem_public
    noise.mix_hash(ephemeral_public)
    noise.mix_hash(ephemeral_kem_public)
    noise.mix_key(x25519(ephemeral, executor_dh))
    message += noise.encrypt(dh_public) + noise.encrypt(kem_public)
    noise.mix_key(x25519(dh, executor_dh))
    message += noise.encrypt(authorization)
    say(dh_public)
    say(kem_public)
    say(message)
    answer = hear()
    noise.mix_hash(answer[:1088])
    noise.mix_key(kem_decapsulate(ephemeral_kem, answer[:1088]))
    noise.mix_key_and_hash(kem_decapsulate(kem, noise.decrypt(answer[1088:2192])))
    noise.mix_hash(answer[2192:2224])
    noise.mix_hash(answer[2224:3408])
    noise.mix_key(x25519(ephemeral, answer[2192:2224]))
    noise.mix_key(x25519(dh, answer[2192:2224]))
    assert noise.decrypt(answer[3408:]) == b"", "the answer has a payload"
    exchange_records(*noise.derive(b"", 2))


def executor(prologue):
    """Says both of its keys, hears the first message, and says what it has learned from it."""
    (dh, dh_public), (kem, kem_public) = dh_generate(), kem_generate()
    say(dh_public)
    say(kem_public)
    noise = Transcript(prologue, (dh_public, kem_public))
    message = hear()
    noise.mix_key_and_hash(kem_decapsulate(kem, noise.decrypt(message[:1088])))
    harness_ephemeral, harness_ephemeral_kem = message[1088:1120], message[1120:2304]
    noise.mix_hash(harness_ephemeral)
    noise.mix_hash(harness_ephemeral_kem)
    noise.mix_key(x25519(dh, harness_ephemeral))
    harness_dh, harness_kem = noise.decrypt(message[2304:2352]), noise.decrypt(message[2352:3552])
    noise.mix_key(x25519(dh, harness_dh))
    authorization = noise.decrypt(message[3552:])
    say(harness_dh)
    say(harness_kem)
    say(authorization)
    ciphertext, secret = kem_encapsulate(harness_ephemeral_kem)
    noise.mix_hash(ciphertext)
    noise.mix_key(secret)
    answer = ciphertext
    ciphertext, secret = kem_encapsulate(harness_kem)
    answer += noise.encrypt(ciphertext)
    noise.mix_key_and_hash(secret)
    (ephemeral, ephemeral_public), (_, ephemeral_kem_public) = dh_generate(), kem_generate()
    noise.mix_hash(ephemeral_public)
    noise.mix_hash(ephemeral_kem_public)
    noise.mix_key(x25519(ephemeral, harness_ephemeral))
    noise.mix_key(x25519(ephemeral, harness_dh))
    say(answer + ephemeral_public + ephemeral_kem_public + noise.encrypt(b""))
    from_harness, from_executor = noise.derive(b"", 2)
    exchange_records(from_executor, from_harness)


role, *names = sys.argv[1:]
try:
    {"harness": harness, "executor": executor}[role](binding(*names))
except Refused:
    print("refused", flush=True)
