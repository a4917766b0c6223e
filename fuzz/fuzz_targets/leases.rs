//! Whatever stands in a lease file, in whatever pieces it comes, the same is read of it.
#![no_main]

use nat_dhcp::lease::{Format, Parser, Record, Table};

fn read<'a>(format: Format, pieces: impl Iterator<Item = &'a [u8]>) -> (Vec<Record>, u64) {
    let (mut parser, mut records) = (Parser::new(format), Vec::new());
    pieces.for_each(|piece| parser.feed(piece, |record| records.push(record)));
    parser.finish();
    (records, parser.take_faults().count())
}

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Some((size, text)) = data.split_first() else { return };
    let format = if size & 1 == 0 { Format::Kea } else { Format::Isc };
    let whole = read(format, std::iter::once(text));
    assert_eq!(read(format, text.chunks(usize::from(size / 2) + 1)), whole);
    let mut table = Table::new(4);
    for record in whole.0 {
        table.apply(record, 1_000, |_| ());
        assert!(table.len() <= 4 && table.next_end().is_none_or(|at| at > 1_000));
    }
});
