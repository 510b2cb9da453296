//! A batch of records as the value of one key: pure.
//!
//! | byte | size | |
//! |---|---|---|
//! | 0 | 4 | `hlB1` |
//! | 4 | 4 | CRC-32C of what follows |
//! | 8 | 8 | index of the first record |
//! | 16 | 4 | how many records |
//! | 20 | 4 | epoch of the leader that wrote it |
//! | 24 | | for each record: 4 length, 4 logic number, the payload |
//!
//! All numbers are little-endian.

use bytes::{Buf, BufMut, Bytes, BytesMut};

use crate::{Index, Record};

const MAGIC: &[u8; 4] = b"hlB1";
const HEADER: usize = 24;
/// What a record takes beside its payload.
pub(super) const FRAME: usize = 8;

/// Writes a batch; there is at least one record in it.
pub(super) fn write<'a>(epoch: u32, records: impl Iterator<Item = &'a Record>) -> Bytes {
    let mut out = BytesMut::with_capacity(4096);
    out.put_bytes(0, HEADER);
    let (mut first, mut count) = (None, 0);
    for record in records {
        first.get_or_insert(record.index);
        count += 1;
        out.put_u32_le(record.payload.len() as u32);
        out.put_u32_le(record.logic);
        out.put_slice(&record.payload);
    }
    let mut header = &mut out[..HEADER];
    header.put_slice(MAGIC);
    header.put_u32_le(0);
    header.put_u64_le(first.map_or(0, |first| first.0));
    header.put_u32_le(count);
    header.put_u32_le(epoch);
    let crc = crc32c::crc32c(&out[8..]);
    out[4..8].copy_from_slice(&crc.to_le_bytes());
    out.freeze()
}

/// Reads a batch; none if it is not one.
pub(super) fn read(mut value: Bytes) -> Option<Vec<Record>> {
    if value.len() < HEADER || !value.starts_with(MAGIC) {
        return None;
    }
    let crc = crc32c::crc32c(&value[8..]);
    value.advance(4);
    if value.get_u32_le() != crc {
        return None;
    }
    let (first, count, _epoch) = (value.get_u64_le(), value.get_u32_le(), value.get_u32_le());
    let mut records = Vec::new();
    for number in 0..u64::from(count) {
        if value.remaining() < FRAME {
            return None;
        }
        let (length, logic) = (value.get_u32_le() as usize, value.get_u32_le());
        if value.remaining() < length {
            return None;
        }
        let index = Index(first.checked_add(number)?);
        records.push(Record { index, logic, payload: value.split_to(length) });
    }
    value.is_empty().then_some(records)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records() -> Vec<Record> {
        let record = |index, payload: &'static [u8]| Record {
            index: Index(index),
            logic: 3,
            payload: Bytes::from_static(payload),
        };
        vec![record(7, b""), record(8, b"eight"), record(9, &[0; 300])]
    }

    #[test]
    fn a_batch_is_read_as_it_was_written() {
        let records = records();
        assert_eq!(read(write(2, records.iter())), Some(records));
    }

    #[test]
    fn a_wrong_bit_or_a_missing_end_is_found() {
        let batch = write(2, records().iter());
        for at in 0..batch.len() {
            let mut wrong = BytesMut::from(&batch[..]);
            wrong[at] ^= 4;
            assert_eq!(read(wrong.freeze()), None, "byte {at}");
            assert_eq!(read(batch.slice(..at)), None, "cut at {at}");
        }
    }
}
