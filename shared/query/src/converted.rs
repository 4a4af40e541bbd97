//! DataFusion's own accumulators over values of another type: what they take is converted before, what they tell after.

use datafusion::{
    arrow::{
        array::{ArrayRef, BooleanArray},
        datatypes::DataType,
    },
    common::{Result, ScalarValue},
    logical_expr::{Accumulator, EmitTo, GroupsAccumulator},
};

/// From the values of a column to those that are gathered, and back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Conversion {
    /// Of arguments.
    pub(crate) into: fn(&[ArrayRef]) -> Result<Vec<ArrayRef>>,
    /// Of results, to the type that they have.
    pub(crate) back: fn(&ArrayRef, &DataType) -> Result<ArrayRef>,
}

impl Conversion {
    /// One result of type `kind`, which `inner` gathers.
    pub(crate) fn one(self, kind: DataType, inner: Box<dyn Accumulator>) -> Box<dyn Accumulator> {
        Box::new(One {
            how: self,
            kind,
            inner,
        })
    }

    /// A result of type `kind` for each group, which `inner` gathers.
    pub(crate) fn groups(
        self,
        kind: DataType,
        inner: Box<dyn GroupsAccumulator>,
    ) -> Box<dyn GroupsAccumulator> {
        Box::new(Groups {
            how: self,
            kind,
            inner,
        })
    }
}

#[derive(Debug)]
struct One {
    how: Conversion,
    kind: DataType,
    inner: Box<dyn Accumulator>,
}

impl Accumulator for One {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.inner.update_batch(&(self.how.into)(values)?)
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let found = self.inner.evaluate()?.to_array()?;
        ScalarValue::try_from_array(&(self.how.back)(&found, &self.kind)?, 0)
    }

    fn size(&self) -> usize {
        size_of::<DataType>() + self.inner.size()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        self.inner.state()
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.inner.merge_batch(states)
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.inner.retract_batch(&(self.how.into)(values)?)
    }

    fn supports_retract_batch(&self) -> bool {
        self.inner.supports_retract_batch()
    }
}

struct Groups {
    how: Conversion,
    kind: DataType,
    inner: Box<dyn GroupsAccumulator>,
}

impl GroupsAccumulator for Groups {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        groups: &[usize],
        filter: Option<&BooleanArray>,
        total: usize,
    ) -> Result<()> {
        self.inner
            .update_batch(&(self.how.into)(values)?, groups, filter, total)
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        (self.how.back)(&self.inner.evaluate(emit_to)?, &self.kind)
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        self.inner.state(emit_to)
    }

    fn merge_batch(&mut self, values: &[ArrayRef], groups: &[usize], total: usize) -> Result<()> {
        self.inner.merge_batch(values, groups, total)
    }

    fn convert_to_state(
        &self,
        values: &[ArrayRef],
        filter: Option<&BooleanArray>,
    ) -> Result<Vec<ArrayRef>> {
        self.inner
            .convert_to_state(&(self.how.into)(values)?, filter)
    }

    fn size(&self) -> usize {
        self.inner.size()
    }
}
