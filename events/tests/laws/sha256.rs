//! SHA-256 (FIPS 180-4), for the long rows of the case tables; nothing but tests uses it.

/// The fractional parts of the roots of the first primes, as the standard derives its constants.
fn root_bits(cube: bool, count: usize) -> Vec<u32> {
    let primes = (2u64..).filter(|n| (2..*n).take_while(|d| d * d <= *n).all(|d| n % d != 0));
    primes
        .take(count)
        .map(|prime| {
            // The largest x with x^k <= prime * 2^(32 k): the root with 32 bits behind the point.
            let fits = |x: u128| {
                if cube { cube_at_most(x, prime) } else { x * x <= u128::from(prime) << 64 }
            };
            let root = (0..40).rev().fold(
                0u128,
                |root, bit| {
                    if fits(root | 1 << bit) { root | 1 << bit } else { root }
                },
            );
            (root & 0xffff_ffff) as u32
        })
        .collect()
}

/// Whether x^3 <= prime * 2^96, for x below 2^40.
fn cube_at_most(x: u128, prime: u64) -> bool {
    x.pow(3) <= u128::from(prime) << 96
}

/// The digest of `data` in hexadecimal.
pub fn hex_digest(data: &[u8]) -> String {
    let k = root_bits(true, 64);
    let mut state = root_bits(false, 8);
    let mut message = data.to_vec();
    message.push(0x80);
    message.resize(message.len().next_multiple_of(64), 0);
    if message.len() - data.len() < 9 {
        message.resize(message.len() + 64, 0);
    }
    let end = message.len();
    message[end - 8..].copy_from_slice(&(data.len() as u64 * 8).to_be_bytes());
    for block in message.chunks(64) {
        let mut w: Vec<u32> =
            block.chunks(4).map(|word| u32::from_be_bytes(word.try_into().unwrap())).collect();
        for i in 16..64 {
            let s0 = w[i - 15].rotate_right(7) ^ w[i - 15].rotate_right(18) ^ (w[i - 15] >> 3);
            let s1 = w[i - 2].rotate_right(17) ^ w[i - 2].rotate_right(19) ^ (w[i - 2] >> 10);
            w.push(w[i - 16].wrapping_add(s0).wrapping_add(w[i - 7]).wrapping_add(s1));
        }
        let mut v = state.clone();
        for i in 0..64 {
            let s1 = v[4].rotate_right(6) ^ v[4].rotate_right(11) ^ v[4].rotate_right(25);
            let choice = (v[4] & v[5]) ^ (!v[4] & v[6]);
            let t1 = v[7].wrapping_add(s1).wrapping_add(choice).wrapping_add(k[i]).wrapping_add(w[i]);
            let s0 = v[0].rotate_right(2) ^ v[0].rotate_right(13) ^ v[0].rotate_right(22);
            let majority = (v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]);
            v.rotate_right(1);
            v[4] = v[4].wrapping_add(t1);
            v[0] = t1.wrapping_add(s0).wrapping_add(majority);
        }
        state.iter_mut().zip(v).for_each(|(word, add)| *word = word.wrapping_add(add));
    }
    state.iter().map(|word| format!("{word:08x}")).collect()
}

#[test]
fn known_digests() {
    assert_eq!(hex_digest(b""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    assert_eq!(hex_digest(b"abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    let two_blocks = b"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
    assert_eq!(hex_digest(two_blocks), "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
}
