//! G.711 companding (ITU-T G.711): µ-law and A-law, a byte a sample at 8 kHz.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Samples a second.
pub const RATE: u32 = 8_000;

/// One of the two laws.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, JsonSchema)]
pub enum Law {
    /// µ-law, PCMU, payload type 0.
    #[default]
    #[serde(rename = "pcmu")]
    Mu,
    /// A-law, PCMA, payload type 8.
    #[serde(rename = "pcma")]
    A,
}

/// What µ-law adds to a magnitude, so that its segments begin at powers of two.
const BIAS: i32 = 0x84;
/// Largest magnitude of µ-law.
const MU_MAX: i32 = 32_635;
/// A peak of this many steps is a sine of 3.14 dBm0 (A-law; µ-law: 3.17).
const PEAK: f64 = 32_256.0;
#[expect(clippy::approx_constant, reason = "a level of the recommendation, and not half a circle")]
const PEAK_DBM0: f64 = 3.14;

impl Law {
    /// Static payload type (RFC 3551 section 6).
    pub fn payload_type(self) -> u8 {
        match self {
            Self::Mu => 0,
            Self::A => 8,
        }
    }

    /// The law of a static payload type.
    pub fn of(payload_type: u8) -> Option<Self> {
        [Self::Mu, Self::A].into_iter().find(|law| law.payload_type() == payload_type)
    }

    /// Encoding name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Mu => "PCMU",
            Self::A => "PCMA",
        }
    }

    /// The byte of a sample.
    pub fn encode(self, sample: i16) -> u8 {
        match self {
            Self::Mu => {
                let sign = if sample < 0 { 0x80 } else { 0 };
                let magnitude = i32::from(sample).abs().min(MU_MAX) + BIAS;
                let exponent = 24 - magnitude.leading_zeros() as i32;
                let mantissa = magnitude >> (exponent + 3) & 0xf;
                !(sign | (exponent << 4) as u8 | mantissa as u8)
            }
            Self::A => {
                let (value, mask) = match i32::from(sample) >> 3 {
                    value if value >= 0 => (value, 0xd5),
                    value => (-value - 1, 0x55),
                };
                let segment = (27 - (value | 0x1f).leading_zeros() as i32).min(7);
                let value = value.min(0xfff);
                let mantissa = value >> segment.max(1) & 0xf;
                ((segment << 4) as u8 | mantissa as u8) ^ mask
            }
        }
    }

    /// The sample of a byte.
    pub fn decode(self, byte: u8) -> i16 {
        let value = match self {
            Self::Mu => {
                let code = i32::from(!byte);
                let magnitude = (((code & 0xf) << 3) + BIAS) << (code >> 4 & 7);
                if code & 0x80 == 0 { magnitude - BIAS } else { BIAS - magnitude }
            }
            Self::A => {
                let code = i32::from(byte ^ 0x55);
                let (mantissa, segment) = ((code & 0xf) << 4, code >> 4 & 7);
                let magnitude = match segment {
                    0 => mantissa + 8,
                    _ => (mantissa + 0x108) << (segment - 1),
                };
                if code & 0x80 == 0 { -magnitude } else { magnitude }
            }
        };
        value as i16
    }
}

/// Largest sample of a sine at `level` dBm0.
pub fn amplitude(level: f64) -> f64 {
    PEAK * 10f64.powf((level - PEAK_DBM0) / 20.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn known_codes() {
        // G.711 tables 1a and 2a: the ends and the zeros
        for (law, sample, code) in [
            (Law::Mu, 0, 0xff),
            (Law::Mu, 32_767, 0x80),
            (Law::Mu, -32_768, 0x00),
            (Law::A, 0, 0xd5),
            (Law::A, 32_767, 0xaa),
            (Law::A, -32_768, 0x2a),
            (Law::A, -1, 0x55),
        ] {
            assert_eq!(law.encode(sample), code, "{law:?} {sample}");
        }
        assert_eq!([Law::Mu.decode(0x80), Law::Mu.decode(0x00)], [32_124, -32_124]);
        assert_eq!([Law::A.decode(0xaa), Law::A.decode(0x2a)], [32_256, -32_256]);
    }

    #[test]
    fn every_code_stands_for_a_sample_of_its_own() {
        for law in [Law::Mu, Law::A] {
            for code in 0..=u8::MAX {
                // µ-law has two zeros
                let expected = if law == Law::Mu && code == 0x7f { 0xff } else { code };
                assert_eq!(law.encode(law.decode(code)), expected, "{law:?} {code:#x}");
            }
        }
    }

    #[test]
    fn level_zero_is_the_tone_of_the_recommendation() {
        assert!((amplitude(PEAK_DBM0) - PEAK).abs() < 1e-9);
        assert!((amplitude(0.0) - 22_470.4).abs() < 0.1, "{}", amplitude(0.0));
    }

    proptest! {
        #[test]
        fn a_sample_comes_back_within_its_step(sample in any::<i16>()) {
            for law in [Law::Mu, Law::A] {
                let error = (i32::from(law.decode(law.encode(sample))) - i32::from(sample)).abs();
                let step = (i32::from(sample).abs() / 16).max(16);
                prop_assert!(error <= step.max(i32::from(sample).abs() - 32_124), "{:?} {} {}", law, sample, error);
            }
        }
    }
}
