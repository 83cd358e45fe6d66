//! Puts records into the order of their numbers. Records may arrive twice or in another order; they are passed on once
//! and in order.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;

use crate::limits::MAX_REORDER_DISTANCE;

/// What `insert` did with a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// It is the next one, so it can be taken now.
    Next,
    /// It is kept until the records before it arrive.
    Early,
    /// A copy of it arrived earlier; this copy is dropped.
    Repeated,
}

/// Too many records, or too many bytes, wait for an earlier record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WindowExceeded;

/// The records that have arrived and were not taken yet.
#[derive(Debug)]
pub(crate) struct OrderedRecords {
    /// Number of records that were taken. This is the number of the next record to take.
    taken: u64,
    /// Records without a gap after those that were taken, in order.
    ready: VecDeque<Bytes>,
    ready_bytes: usize,
    /// Records after a gap.
    early: BTreeMap<u64, Bytes>,
    early_bytes: usize,
    max_early_bytes: usize,
}

impl OrderedRecords {
    /// No record has arrived. At most `max_early_bytes` are kept while an earlier record is missing.
    pub(crate) fn new(max_early_bytes: usize) -> Self {
        Self {
            taken: 0,
            ready: VecDeque::new(),
            ready_bytes: 0,
            early: BTreeMap::new(),
            early_bytes: 0,
            max_early_bytes,
        }
    }

    /// Number of records that were received without a gap.
    pub(crate) fn received(&self) -> u64 {
        self.taken + self.ready.len() as u64
    }

    /// Number of records that were taken.
    pub(crate) fn taken(&self) -> u64 {
        self.taken
    }

    /// Bytes that wait to be taken.
    pub(crate) fn ready_bytes(&self) -> usize {
        self.ready_bytes
    }

    /// Bit `i` is set if the record `received() + 1 + i` has arrived.
    pub(crate) fn early_bits(&self) -> u32 {
        let first = self.received() + 1;
        self.early.range(first..first + 32).fold(0, |bits, (number, _)| bits | 1 << (number - first))
    }

    /// Adds a record that has arrived. The first copy of a record counts.
    pub(crate) fn insert(&mut self, number: u32, record: Bytes) -> Result<Arrival, WindowExceeded> {
        let number = u64::from(number);
        let next = self.received();
        if number < next || self.early.contains_key(&number) {
            return Ok(Arrival::Repeated);
        }
        if number > next {
            let bytes = self.early_bytes + record.len();
            if number - next > MAX_REORDER_DISTANCE.into() || bytes > self.max_early_bytes {
                return Err(WindowExceeded);
            }
            self.early_bytes = bytes;
            self.early.insert(number, record);
            return Ok(Arrival::Early);
        }
        self.add_ready(record);
        while let Some(record) = self.early.remove(&self.received()) {
            self.early_bytes -= record.len();
            self.add_ready(record);
        }
        Ok(Arrival::Next)
    }

    fn add_ready(&mut self, record: Bytes) {
        self.ready_bytes += record.len();
        self.ready.push_back(record);
    }

    /// Takes the next record, if it has arrived.
    pub(crate) fn take(&mut self) -> Option<Bytes> {
        let record = self.ready.pop_front()?;
        self.ready_bytes -= record.len();
        self.taken += 1;
        Some(record)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::limits::MAX_REORDER_BYTES;

    fn take_all(records: &mut OrderedRecords) -> Vec<Bytes> {
        std::iter::from_fn(|| records.take()).collect()
    }

    #[test]
    fn records_are_taken_in_order_and_the_first_copy_counts() {
        let mut records = OrderedRecords::new(MAX_REORDER_BYTES);
        assert_eq!(records.insert(2, Bytes::from("c")), Ok(Arrival::Early));
        assert_eq!(records.insert(2, Bytes::from("forged")), Ok(Arrival::Repeated));
        assert_eq!(records.insert(0, Bytes::from("a")), Ok(Arrival::Next));
        assert_eq!((records.received(), records.early_bits()), (1, 1));
        assert_eq!(take_all(&mut records), ["a"]);
        assert_eq!(records.insert(0, Bytes::from("a")), Ok(Arrival::Repeated));
        assert_eq!(records.insert(1, Bytes::from("b")), Ok(Arrival::Next));
        assert_eq!(take_all(&mut records), ["b", "c"]);
        assert_eq!((records.received(), records.early_bits()), (3, 0));
    }

    #[test]
    fn a_record_64_ahead_is_kept_and_one_65_ahead_is_refused() {
        let mut records = OrderedRecords::new(MAX_REORDER_BYTES);
        assert_eq!(records.insert(64, Bytes::from("x")), Ok(Arrival::Early));
        assert_eq!(records.insert(65, Bytes::from("x")), Err(WindowExceeded));
    }

    #[test]
    fn a_mebibyte_is_kept_and_one_byte_more_is_refused() {
        let mut records = OrderedRecords::new(MAX_REORDER_BYTES);
        assert_eq!(records.insert(1, vec![0; MAX_REORDER_BYTES].into()), Ok(Arrival::Early));
        assert_eq!(records.insert(2, Bytes::from("x")), Err(WindowExceeded));
        // The missing record is not counted, because it makes the others ready.
        assert_eq!(records.insert(0, vec![0; MAX_REORDER_BYTES].into()), Ok(Arrival::Next));
        assert_eq!(records.insert(3, Bytes::from("x")), Ok(Arrival::Early));
    }

    proptest! {
        /// Whatever the order and however often a record is repeated, what is taken is a prefix in order.
        #[test]
        fn any_order_gives_a_prefix_in_order(numbers in proptest::collection::vec(0_u32..100, 0..300)) {
            let mut records = OrderedRecords::new(MAX_REORDER_BYTES);
            let mut seen = std::collections::BTreeSet::new();
            let mut taken = Vec::new();
            for number in numbers {
                if records.insert(number, Bytes::copy_from_slice(&number.to_be_bytes())).is_ok() {
                    seen.insert(number);
                }
                taken.extend(take_all(&mut records));
                let expected = (0..).take_while(|number| seen.contains(number)).count();
                prop_assert_eq!(taken.len(), expected);
                let first = expected as u32 + 1;
                let bits = (0..32).filter(|bit| seen.contains(&(first + bit))).fold(0, |bits, bit| bits | 1 << bit);
                prop_assert_eq!(records.early_bits(), bits);
            }
            for (place, record) in taken.iter().enumerate() {
                prop_assert_eq!(&record[..], &(place as u32).to_be_bytes());
            }
        }
    }
}
