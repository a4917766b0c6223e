use base64::prelude::{BASE64_STANDARD, Engine as _};
use milenage::Milenage;
use std::fmt;

/// What a SIM shares with its network: subscriber key K and OPc (3GPP TS 35.206).
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Aka {
    k: [u8; 16],
    opc: [u8; 16],
}

/// Why a challenge of digest AKA is not answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AkaError {
    /// The nonce does not begin with RAND and AUTN.
    #[error("the nonce is not RAND and AUTN in base64")]
    Nonce,
    /// The network does not know K and OPc.
    #[error("AUTN of the nonce was not made with this K and OP (its MAC-A is wrong)")]
    Mac,
}

impl Aka {
    /// Keys with the operator's OP.
    pub fn with_op(k: [u8; 16], op: [u8; 16]) -> Option<Self> {
        let milenage = Milenage::new_with_op(k, op).ok()?;
        Some(Self { k, opc: *milenage.opc() })
    }

    /// Keys with OPc, which is OP combined with K.
    pub fn with_opc(k: [u8; 16], opc: [u8; 16]) -> Self {
        Self { k, opc }
    }

    /// RES, the password of the answer (RFC 3310 section 3): the nonce is base64 of RAND, AUTN and maybe more. Sequence
    /// numbers are not kept: any SQN is taken.
    pub fn response(&self, nonce: &[u8]) -> Result<[u8; 8], AkaError> {
        let bytes = BASE64_STANDARD.decode(nonce).map_err(|_| AkaError::Nonce)?;
        let (rand, autn) = bytes.split_first_chunk::<16>().ok_or(AkaError::Nonce)?;
        let autn = autn.first_chunk::<16>().ok_or(AkaError::Nonce)?;
        let mut milenage = Milenage::new_with_opc(self.k, self.opc);
        let (res, _, _, ak) = milenage.f2345(rand);
        // AUTN: SQN xor AK, AMF, MAC-A
        let sqn = std::array::from_fn(|at| autn[at] ^ ak[at]);
        let mac = milenage.f1(rand, &sqn, &[autn[6], autn[7]]);
        (mac == autn[8..]).then_some(res).ok_or(AkaError::Mac)
    }
}

impl fmt::Debug for Aka {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Aka")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Test sets 1 to 3 of 3GPP TS 35.208: K, OP, OPc, RAND, SQN, AMF, f1, f2, f5.
    const SETS: [[&str; 9]; 3] = [
        [
            "465b5ce8b199b49faa5f0a2ee238a6bc",
            "cdc202d5123e20f62b6d676ac72cb318",
            "cd63cb71954a9f4e48a5994e37a02baf",
            "23553cbe9637a89d218ae64dae47bf35",
            "ff9bb4d0b607",
            "b9b9",
            "4a9ffac354dfafb3",
            "a54211d5e3ba50bf",
            "aa689c648370",
        ],
        [
            "0396eb317b6d1c36f19c1c84cd6ffd16",
            "ff53bade17df5d4e793073ce9d7579fa",
            "53c15671c60a4b731c55b4a441c0bde2",
            "c00d603103dcee52c4478119494202e8",
            "fd8eef40df7d",
            "af17",
            "5df5b31807e258b0",
            "d3a628ed988620f0",
            "c47783995f72",
        ],
        [
            "fec86ba6eb707ed08905757b1bb44b8f",
            "dbc59adcb6f9a0ef735477b7fadf8374",
            "1006020f0a478bf6b699f15c062e42b3",
            "9f7c8d021accf4db213ccff0c7f71a6a",
            "9d0277595ffc",
            "725c",
            "9cabc3e99baf7281",
            "8011c48c0c214ed2",
            "33484dc2136b",
        ],
    ];

    fn bytes<const N: usize>(hex: &str) -> [u8; N] {
        std::array::from_fn(|at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).expect("hex"))
    }

    fn nonce([_, _, _, rand, sqn, amf, mac, _, ak]: [&str; 9]) -> Vec<u8> {
        let (sqn, ak) = (bytes::<6>(sqn), bytes::<6>(ak));
        let hidden: [u8; 6] = std::array::from_fn(|at| sqn[at] ^ ak[at]);
        [&bytes::<16>(rand)[..], &hidden, &bytes::<2>(amf), &bytes::<8>(mac)].concat()
    }

    #[test]
    fn res_is_that_of_the_test_sets() {
        for set in SETS {
            let [k, op, opc, .., res, _] = set;
            let aka = Aka::with_op(bytes(k), bytes(op)).expect("keys");
            assert_eq!(aka, Aka::with_opc(bytes(k), bytes(opc)));
            let nonce = nonce(set);
            assert_eq!(aka.response(BASE64_STANDARD.encode(&nonce).as_bytes()), Ok(bytes(res)));
            let longer = [&nonce[..], b"and what the server adds"].concat();
            assert_eq!(aka.response(BASE64_STANDARD.encode(longer).as_bytes()), Ok(bytes(res)));
        }
    }

    #[test]
    fn a_challenge_of_another_network_is_not_answered() {
        let [first, second, _] = SETS;
        let aka = Aka::with_op(bytes(first[0]), bytes(first[1])).expect("keys");
        let foreign = BASE64_STANDARD.encode(nonce(second));
        assert_eq!(aka.response(foreign.as_bytes()), Err(AkaError::Mac));
        for at in 16..32 {
            let mut changed = nonce(first);
            changed[at] ^= 1;
            assert_eq!(aka.response(BASE64_STANDARD.encode(changed).as_bytes()), Err(AkaError::Mac), "{at}");
        }
        for short in ["", "abc", "not base64!", &BASE64_STANDARD.encode([0; 31])] {
            assert_eq!(aka.response(short.as_bytes()), Err(AkaError::Nonce), "{short}");
        }
        assert_eq!(format!("{aka:?}"), "Aka");
    }
}
