use super::*;
use proptest::prelude::*;

const FORWARD: Forward = Forward { to: Side::Outside, hop: 3, realm: 0 };

/// An IP packet with these options, id, flags and offset, and so many bytes.
fn packet(options: &[u8], place: u16, payload: usize) -> Vec<u8> {
    let total = (20 + options.len() + payload) as u16;
    let mut head = [&[0; 20], options].concat();
    (head[0], head[8], head[9]) = (0x40 | (head.len() / 4) as u8, 63, 17);
    head[2..4].copy_from_slice(&total.to_be_bytes());
    head[4..6].copy_from_slice(&0x1234u16.to_be_bytes());
    head[6..8].copy_from_slice(&place.to_be_bytes());
    let sum = checksum::of(&head).to_be_bytes();
    head[10..12].copy_from_slice(&sum);
    head.extend((0..payload).map(|at| at as u8 ^ (at >> 8) as u8));
    head
}

fn pieces(packet: &[u8], mtu: usize) -> Result<Vec<Vec<u8>>, Reason> {
    let mut outbox = Outbox::new(64, 1500);
    fragment(packet, mtu, FORWARD, &mut outbox)?;
    let next = |outbox: &mut Outbox| outbox.pop().map(|(to, bytes)| (to, bytes.to_vec()));
    let mut all = Vec::new();
    while let Some((to, bytes)) = next(&mut outbox) {
        assert_eq!(to, FORWARD);
        all.push(bytes);
    }
    Ok(all)
}

proptest! {
    /// Whoever puts the pieces together has the packet again, whatever piece it was itself.
    #[test]
    fn pieces_are_the_packet(
        payload in 1usize..9_000,
        mtu in 68usize..2_000,
        offset in 0u16..100,
        more: bool,
        options in 0usize..3,
    ) {
        let options = &[148u8, 4, 0, 0, 148, 4, 0, 0][..4 * options];
        let more = if more { MORE } else { 0 };
        // Only the last piece of a packet has any length.
        let payload = if more == 0 { payload } else { (payload + 7) & !7 };
        let whole = packet(options, offset | more, payload);
        // Within the room of the outbox.
        prop_assume!(payload / (mtu - 68).max(8) < 60);
        let all = pieces(&whole, mtu).unwrap();
        let head = 20 + options.len();
        let mut together = vec![0; payload];
        for (at, piece) in all.iter().enumerate() {
            prop_assert!(piece.len() <= mtu);
            prop_assert_eq!(checksum::of(&piece[..head]), 0);
            prop_assert_eq!(usize::from(u16::from_be_bytes([piece[2], piece[3]])), piece.len());
            prop_assert_eq!(&piece[4..6], &whole[4..6]);
            prop_assert_eq!((&piece[8..10], &piece[12..20]), (&whole[8..10], &whole[12..20]));
            let place = u16::from_be_bytes([piece[6], piece[7]]);
            let last = at + 1 == all.len();
            prop_assert_eq!(place & MORE, if last { more } else { MORE });
            let from = usize::from((place & OFFSET) - offset) * 8;
            together[from..from + piece.len() - head].copy_from_slice(&piece[head..]);
        }
        prop_assert_eq!(&together[..], &whole[head..]);
    }
}

#[test]
fn options_are_copied_that_are_to_be() {
    // Record route stays in the first piece, router alert goes with all (RFC 791 section 3.1).
    let whole = packet(&[7, 7, 4, 0, 0, 0, 0, 148, 4, 0, 0, 0], 0, 1_000);
    let all = pieces(&whole, 576).unwrap();
    assert_eq!(all[0][..2], [0x48, 0]);
    assert_eq!((all[0][20..32].to_vec(), all[1][0]), (whole[20..32].to_vec(), 0x46));
    assert_eq!(all[1][20..24], [148, 4, 0, 0]);
    assert_eq!(pieces(&packet(&[148, 9, 0, 0], 0, 1_000), 576), Err(Reason::Malformed));
    assert_eq!(pieces(&packet(&[148, 0, 0, 0], 0, 1_000), 576), Err(Reason::Malformed));
}

#[test]
fn all_pieces_or_none() {
    let mut outbox = Outbox::new(2, 1500);
    let whole = packet(&[], 0, 1_400);
    assert_eq!(fragment(&whole, 576, FORWARD, &mut outbox), Err(Reason::FragmentsFull));
    assert_eq!((outbox.room(), outbox.pop()), (2, None));
    assert_eq!(fragment(&whole, 1_000, FORWARD, &mut outbox), Ok(()));
    assert_eq!(outbox.room(), 0);
    assert_eq!(fragment(&whole[..10], 576, FORWARD, &mut outbox), Err(Reason::Malformed));
}
