//! What the planner looks at, loaded for every live incremental model together.

use std::collections::{BTreeMap, BTreeSet};

use domain::{
    Position, TableName, Timestamp,
    items::{Control, Cycle, Head, ModelState},
    plan::{self, Decision, View},
};
use ports::{
    Result,
    state::{Expect, Item, Key},
};

use crate::{
    World,
    load::{self, Items},
    refresh::{job::Input, lag},
};

/// State of all live incremental models and of their inputs.
#[derive(Debug)]
pub(crate) struct Known {
    items: Items,
    /// Positions of every table that has a head.
    pub(crate) positions: BTreeMap<TableName, Position>,
    /// Heads of the same tables.
    pub(crate) heads: BTreeMap<TableName, Head>,
    /// What models have consumed.
    pub(crate) consumed: BTreeMap<(TableName, TableName), Position>,
    /// How models' refreshes went.
    pub(crate) states: BTreeMap<TableName, ModelState>,
    /// What was asked of models.
    pub(crate) controls: BTreeMap<TableName, Control>,
    /// The last cycle.
    pub(crate) cycle: Option<Cycle>,
    /// When the oldest data arrived that models with a `target_lag` have not applied.
    origins: BTreeMap<TableName, Timestamp>,
    /// The same by input and what of it is unread: looked up once.
    sought: BTreeMap<(TableName, [u64; 4]), Option<Timestamp>>,
}

impl Known {
    /// Loads it all, with one consistent read when a hundred items suffice.
    ///
    /// # Errors
    /// `Unavailable` or `Corrupt` from the state store.
    pub(crate) async fn load(world: &World) -> Result<Self> {
        Self::load_beside(world, None).await
    }

    /// The same, and an item that is none of it, with the same read.
    ///
    /// # Errors
    /// As [`Known::load`].
    pub(crate) async fn load_beside(world: &World, beside: Option<&Key>) -> Result<Self> {
        let mut keys = vec![load::cycle()];
        keys.extend(beside.cloned());
        for model in world.project.live() {
            keys.extend(keys_of(world, &model.name));
        }
        let items = Items::load(&*world.state, keys).await?;
        let mut known = Self {
            cycle: items.get(&load::cycle())?,
            items,
            positions: BTreeMap::new(),
            heads: BTreeMap::new(),
            consumed: BTreeMap::new(),
            states: BTreeMap::new(),
            controls: BTreeMap::new(),
            origins: BTreeMap::new(),
            sought: BTreeMap::new(),
        };
        let models: Vec<_> = world
            .project
            .live()
            .map(|model| model.name.clone())
            .collect();
        for model in &models {
            known.decode(world, model)?;
        }
        for table in inputs(world) {
            known.head(&table)?;
        }
        known.seek(world).await?;
        Ok(known)
    }

    /// Loads again what attempts on these models may have changed.
    ///
    /// # Errors
    /// `Unavailable` or `Corrupt` from the state store.
    pub(crate) async fn reload(&mut self, world: &World, models: &[TableName]) -> Result<()> {
        let keys = models.iter().flat_map(|model| own_keys(world, model));
        self.items.reload(&*world.state, keys).await?;
        models
            .iter()
            .try_for_each(|model| self.decode(world, model))?;
        self.seek(world).await
    }

    /// Looks up how old the unapplied data is of models that may wait for more: those with a target, which are behind.
    async fn seek(&mut self, world: &World) -> Result<()> {
        for model in world.project.live() {
            if model.config.target_lag.is_none() || !self.positions.contains_key(&model.name) {
                continue;
            }
            let mut oldest: Option<Timestamp> = None;
            for input in self.inputs(world, &model.name) {
                if !input.is_behind() {
                    continue;
                }
                let (from, to) = (input.consumed, input.to);
                let unread = [from.sequence, from.commits, to.sequence, to.commits];
                let unread = (input.table.clone(), unread);
                let found = match self.sought.get(&unread) {
                    Some(found) => *found,
                    None => lag::of_input(&*world.state, &input).await?,
                };
                self.sought.insert(unread, found);
                oldest = oldest.into_iter().chain(found).min();
            }
            match oldest {
                Some(origin) => self.origins.insert(model.name.clone(), origin),
                None => self.origins.remove(&model.name),
            };
        }
        Ok(())
    }

    fn decode(&mut self, world: &World, model: &TableName) -> Result<()> {
        self.head(model)?;
        self.states.insert(model.clone(), self.items.state(model)?);
        self.controls
            .insert(model.clone(), self.items.control(model)?);
        for input in world.project.inputs.get(model).into_iter().flatten() {
            let consumed = self.items.consumed(model, input)?.position;
            self.consumed
                .insert((model.clone(), input.clone()), consumed);
        }
        Ok(())
    }

    fn head(&mut self, table: &TableName) -> Result<()> {
        if let Some(head) = self.items.head(table)? {
            self.positions.insert(table.clone(), head.position);
            self.heads.insert(table.clone(), head);
        }
        Ok(())
    }

    /// The condition that an item is still as it was read.
    pub(crate) fn expect(&self, key: &Key) -> Expect {
        self.items.expect(key)
    }

    /// An item that was read along, if it was there.
    pub(crate) fn item(&self, key: &Key) -> Option<&Item> {
        self.items.item(key)
    }

    /// When a refresh of a model was asked for that has not ended, in the cycle that is open.
    pub(crate) fn asked(&self, model: &TableName) -> Option<Timestamp> {
        let cycle = self.cycle.as_ref().filter(|cycle| !cycle.closed)?;
        let sent = cycle.sent.get(model)?;
        (!cycle.done.contains_key(model)).then_some(sent.at)
    }

    /// The heads of landing tables as loaded: what a cycle that opens now reads up to (**C-1**).
    pub(crate) fn targets(&self) -> BTreeMap<TableName, Position> {
        self.heads
            .iter()
            .filter(|(_, head)| head.snapshot.is_none())
            .map(|(table, head)| (table.clone(), head.position))
            .collect()
    }

    /// The planner's view of it.
    pub(crate) fn view<'a>(
        &'a self,
        world: &'a World,
        now: Timestamp,
        targets: &'a BTreeMap<TableName, Position>,
        attempted: &'a BTreeSet<TableName>,
    ) -> View<'a> {
        View {
            project: &world.project,
            live: &world.live,
            now,
            heads: &self.positions,
            consumed: &self.consumed,
            states: &self.states,
            origins: &self.origins,
            controls: &self.controls,
            targets,
            attempted,
        }
    }

    /// What a cycle that opened now would begin with.
    pub(crate) fn outlook(&self, world: &World) -> BTreeMap<TableName, Decision> {
        let (targets, attempted) = (self.targets(), BTreeSet::new());
        plan::decide(&self.view(world, world.clock.now(), &targets, &attempted))
    }

    /// The inputs of a model, as far as they have come.
    pub(crate) fn inputs(&self, world: &World, model: &TableName) -> Vec<Input> {
        let inputs = world.project.inputs.get(model).into_iter().flatten();
        let input = |table: &TableName| {
            let consumed = self.consumed.get(&(model.clone(), table.clone()));
            let consumed = consumed.copied().unwrap_or_default();
            let head = self.heads.get(table);
            Input {
                table: table.clone(),
                consumed,
                to: consumed.advance(head.map(|head| head.position).unwrap_or_default()),
                landing: head.is_none_or(|head| head.snapshot.is_none()),
                from: None,
                snapshot: None,
                rebuilt: false,
            }
        };
        inputs.map(input).collect()
    }
}

/// Every input of every live incremental model.
fn inputs(world: &World) -> BTreeSet<TableName> {
    let of = |model: &domain::Model| world.project.inputs.get(&model.name);
    world
        .project
        .live()
        .filter_map(of)
        .flatten()
        .cloned()
        .collect()
}

/// Keys of all that a decision about a model looks at.
fn keys_of(world: &World, model: &TableName) -> Vec<Key> {
    let mut keys = own_keys(world, model);
    keys.extend(
        world
            .project
            .inputs
            .get(model)
            .into_iter()
            .flatten()
            .map(load::head),
    );
    keys
}

/// Keys of what is a model's own.
fn own_keys(world: &World, model: &TableName) -> Vec<Key> {
    let mut keys = vec![load::head(model), load::state(model), load::control(model)];
    let inputs = world.project.inputs.get(model).into_iter().flatten();
    keys.extend(inputs.map(|input| load::consumed(model, input)));
    keys
}
