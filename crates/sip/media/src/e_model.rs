//! The E-model of ITU-T G.107: from delay and loss of a connection to its rating factor R and MOS.
//!
//! All inputs but delay, loss and its burst ratio have the default values of the recommendation (table 2).

/// What a connection does to speech, beside the defaults of the recommendation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Impairments {
    /// Absolute one-way delay in an echo-free connection, ms (Ta). Mean one-way delay of the echo path (T) and round-trip
    /// delay (Tr) are as long and twice as long.
    pub delay: f64,
    /// Packet loss, percent (Ppl): lost packets and those too late to be played.
    pub loss: f64,
    /// Burst ratio (BurstR): mean length of a loss burst over that which random loss would have; 1: random.
    pub burst_ratio: f64,
    /// Robustness of the codec against loss (Bpl).
    pub robustness: f64,
    /// Impairment of the codec without loss (Ie).
    pub equipment: f64,
}

/// Bpl of G.711 without concealment of lost packets, and with that of its appendix I (ITU-T G.113 appendix I).
pub const G711_ROBUSTNESS: f64 = 4.3;
/// The same with concealment.
pub const G711_CONCEALED: f64 = 25.1;
/// Largest burst ratio that the recommendation permits.
const BURST_RATIO_MAX: f64 = 8.0;

impl Default for Impairments {
    fn default() -> Self {
        Self { delay: 0.0, loss: 0.0, burst_ratio: 1.0, robustness: G711_ROBUSTNESS, equipment: 0.0 }
    }
}

// Table 2 of the recommendation.
const SLR: f64 = 8.0;
const RLR: f64 = 2.0;
const STMR: f64 = 15.0;
const D_SEND: f64 = 3.0;
const D_RECEIVE: f64 = 3.0;
const TELR: f64 = 65.0;
const WEPL: f64 = 110.0;
const QDU: f64 = 1.0;
const NC: f64 = -70.0;
const NFOR: f64 = -64.0;
const PS: f64 = 35.0;
const PR: f64 = 35.0;

fn power(db: f64) -> f64 {
    10f64.powf(db / 10.0)
}

/// Circuit noise, all sources together (No, equation 7-3).
fn noise() -> f64 {
    let olr = SLR + RLR;
    let send = PS - SLR - D_SEND - 100.0 + 0.004 * (PS - olr - D_SEND - 14.0).powi(2);
    let lstr = STMR + D_RECEIVE;
    let effective = PR + 10.0 * (1.0 + 10f64.powf((10.0 - lstr) / 10.0)).log10();
    let receive = RLR - 121.0 + effective + 0.008 * (effective - 35.0).powi(2);
    let floor = NFOR + RLR;
    10.0 * (power(NC) + power(send) + power(receive) + power(floor)).log10()
}

/// Basic signal-to-noise ratio (Ro, equation 7-2).
fn basic() -> f64 {
    15.0 - 1.5 * (SLR + noise())
}

/// Impairment by side tone that is too loud (Ist, equation 7-11).
fn side_tone(delay: f64) -> f64 {
    let masked = -10.0 * (power(-STMR) + (-delay / 4.0).exp() * power(-TELR)).log10();
    12.0 * (1.0 + ((masked - 13.0) / 6.0).powi(8)).powf(1.0 / 8.0)
        - 28.0 * (1.0 + ((masked + 1.0) / 19.4).powi(35)).powf(1.0 / 35.0)
        - 13.0 * (1.0 + ((masked - 3.0) / 33.0).powi(13)).powf(1.0 / 13.0)
        + 29.0
}

/// Impairments simultaneous with speech (Is, equation 7-8): loudness, side tone, quantizing.
fn simultaneous(delay: f64) -> f64 {
    let loudness = SLR + RLR + 0.2 * (64.0 + noise() - RLR);
    let loud = 20.0 * ((1.0 + (loudness / 8.0).powi(8)).powf(1.0 / 8.0) - loudness / 8.0);
    let q = 37.0 - 15.0 * QDU.log10();
    let g = 1.07 + 0.258 * q + 0.0602 * q * q;
    let y = (basic() - 100.0) / 15.0 + 46.0 / 8.4 - g / 9.0;
    let z = 46.0 / 30.0 - g / 40.0;
    let quantizing = 15.0 * (1.0 + 10f64.powf(y) + 10f64.powf(z)).log10();
    loud + side_tone(delay) + quantizing
}

/// Impairment by delay (Id, equation 7-17): talker echo, listener echo, and delay that is too long.
pub fn delay_impairment(delay: f64) -> f64 {
    let (noise, round_trip) = (noise(), 2.0 * delay);
    let talker = {
        let basic = -1.5 * (noise - RLR);
        let masking = 6.0 * (-0.3 * delay * delay).exp();
        let loudness = TELR - 40.0 * ((1.0 + delay / 10.0) / (1.0 + delay / 150.0)).log10() + masking;
        let echo = 80.0 + 2.5 * (loudness - 14.0);
        let half = (basic - echo) / 2.0;
        (half + (half * half + 100.0).sqrt() - 1.0) * (1.0 - (-delay).exp())
    };
    let listener = {
        let echo = 10.5 * (WEPL + 7.0) * (round_trip + 1.0).powf(-0.25);
        let basic = basic();
        (basic - echo) / 2.0 + ((basic - echo).powi(2) / 4.0 + 169.0).sqrt()
    };
    let absolute = if delay > 100.0 {
        let x = (delay / 100.0).log2();
        let root = |x: f64| (1.0 + x.powi(6)).powf(1.0 / 6.0);
        25.0 * (root(x) - 3.0 * root(x / 3.0) + 2.0)
    } else {
        0.0
    };
    talker + listener + absolute
}

/// Impairment by the codec and loss (Ie,eff, equation 7-29).
pub fn equipment_impairment(impairments: &Impairments) -> f64 {
    let Impairments { loss, burst_ratio, robustness, equipment, .. } = *impairments;
    let ratio = burst_ratio.clamp(1.0, BURST_RATIO_MAX);
    equipment + (95.0 - equipment) * loss / (loss / ratio + robustness)
}

/// The rating factor (R, equation 7-1), with no advantage factor.
pub fn rating(impairments: &Impairments) -> f64 {
    let delay = impairments.delay.max(0.0);
    basic() - simultaneous(delay) - delay_impairment(delay) - equipment_impairment(impairments)
}

/// Estimated MOS in a conversation (MOS_CQE, annex B).
pub fn mos(rating: f64) -> f64 {
    match rating {
        r if r <= 0.0 => 1.0,
        r if r >= 100.0 => 4.5,
        // between 0 and 6.5 the polynomial falls below 1
        r => (1.0 + 0.035 * r + r * (r - 60.0) * (100.0 - r) * 7e-6).max(1.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn close(found: f64, expected: f64, within: f64) {
        assert!((found - expected).abs() <= within, "{found}, not {expected}");
    }

    #[test]
    fn the_defaults_give_the_published_rating() {
        // G.107 section 7.7: R = 93.2 with all defaults; annex B: MOS 4.41
        let rating = rating(&Impairments::default());
        close(rating, 93.2, 0.01);
        // its parts, as implementations of the recommendation give them
        close(basic(), 94.77, 0.005);
        close(simultaneous(0.0), 1.41, 0.005);
        close(mos(rating), 4.41, 0.005);
    }

    #[test]
    fn mos_is_that_of_table_b1() {
        for (rating, expected) in [(90.0, 4.34), (80.0, 4.03), (70.0, 3.60), (60.0, 3.10), (50.0, 2.58)] {
            close(mos(rating), expected, 0.0075);
        }
        assert_eq!([mos(-1.0), mos(0.0), mos(100.0), mos(120.0)], [1.0, 1.0, 4.5, 4.5]);
    }

    #[test]
    fn loss_of_g711_without_concealment() {
        // Ie,eff = 95 · Ppl / (Ppl + 4.3)
        for (loss, expected) in [(0.0, 0.0), (1.0, 17.92), (2.0, 30.16), (5.0, 51.08), (10.0, 66.43)] {
            let impairments = Impairments { loss, ..Impairments::default() };
            close(equipment_impairment(&impairments), expected, 0.01);
        }
        let concealed = Impairments { loss: 5.0, robustness: G711_CONCEALED, ..Impairments::default() };
        close(equipment_impairment(&concealed), 15.78, 0.01);
    }

    #[test]
    fn bursts_are_worse_than_random_loss() {
        let of = |burst_ratio| {
            equipment_impairment(&Impairments { loss: 5.0, burst_ratio, ..Impairments::default() })
        };
        // 95 · 5 / (5/2 + 4.3)
        close(of(2.0), 69.85, 0.01);
        assert_eq!(of(0.5), of(1.0), "no loss is milder than random");
        assert_eq!(of(20.0), of(8.0), "the recommendation ends there");
    }

    #[test]
    fn delay_hurts_from_about_150_ms_on() {
        // Cole and Rosenbluth's fit of the recommendation's curve: 0.024 d + 0.11 (d − 177.3) for d > 177.3
        let fit = |d: f64| 0.024 * d + if d > 177.3 { 0.11 * (d - 177.3) } else { 0.0 };
        for delay in [50.0, 100.0, 150.0, 200.0, 250.0, 300.0, 400.0] {
            close(delay_impairment(delay), fit(delay), 3.0);
        }
        close(delay_impairment(0.0), 0.149, 0.001);
    }

    proptest! {
        #[test]
        fn more_of_any_impairment_is_never_better(delay in 0.0..1000.0f64, loss in 0.0..100.0f64, burst in 1.0..8.0f64) {
            let at = Impairments { delay, loss, burst_ratio: burst, ..Impairments::default() };
            let r = rating(&at);
            let more_loss = rating(&Impairments { loss: (loss + 1.0).min(100.0), ..at });
            let more_bursts = rating(&Impairments { burst_ratio: burst + 0.1, ..at });
            let more_delay = rating(&Impairments { delay: delay + 10.0, ..at });
            prop_assert!(more_loss <= r && more_bursts <= r && more_delay <= r + 0.05);
            prop_assert!((1.0..=4.5).contains(&mos(r)));
        }
    }
}
