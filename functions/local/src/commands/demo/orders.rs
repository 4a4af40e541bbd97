//! A seeded stream of order events: one seed, one stream.

use rand::{Rng, SeedableRng, rngs::StdRng};
use serde_json::json;

/// Where orders come from.
const REGIONS: [&str; 5] = ["north", "south", "east", "west", "islands"];

/// Orders so far, and what may happen to them next.
#[derive(Debug)]
pub(super) struct Orders {
    rng: StdRng,
    open: Vec<Order>,
    placed: u64,
    /// How often each kind of event was drawn.
    pub(super) drawn: Drawn,
}

/// Events by kind.
#[derive(Clone, Copy, Debug, Default, serde::Serialize)]
pub(super) struct Drawn {
    /// New orders.
    pub(super) placed: u64,
    /// Updates of the amount or the status.
    pub(super) changed: u64,
    /// Orders that moved to another region, and so to another group of gold.
    pub(super) moved: u64,
    /// Cancelled orders, which gold leaves out from then on.
    pub(super) cancelled: u64,
}

impl Drawn {
    /// All events.
    pub(super) fn total(self) -> u64 {
        self.placed + self.changed + self.moved + self.cancelled
    }
}

#[derive(Clone, Debug)]
struct Order {
    id: u64,
    region: &'static str,
    cents: u64,
    status: &'static str,
}

impl Orders {
    /// The stream of a seed.
    pub(super) fn new(seed: u64) -> Self {
        Self {
            rng: StdRng::seed_from_u64(seed),
            open: Vec::new(),
            placed: 0,
            drawn: Drawn::default(),
        }
    }

    /// The next event, as its JSON text.
    pub(super) fn next_event(&mut self) -> String {
        let roll = self.rng.random_range(0..100);
        if self.open.is_empty() || roll < 45 {
            return self.place();
        }
        let at = self.rng.random_range(0..self.open.len());
        match roll {
            45..75 => self.change(at),
            75..90 => self.change_region(at),
            _ => {
                let mut order = self.open.swap_remove(at);
                order.status = "cancelled";
                self.drawn.cancelled += 1;
                event(&order)
            }
        }
    }

    fn place(&mut self) -> String {
        self.placed += 1;
        self.drawn.placed += 1;
        let region = REGIONS[self.rng.random_range(0..REGIONS.len())];
        let order = Order {
            id: self.placed,
            region,
            cents: self.rng.random_range(500..20_000),
            status: "placed",
        };
        let text = event(&order);
        self.open.push(order);
        text
    }

    fn change(&mut self, at: usize) -> String {
        self.drawn.changed += 1;
        let order = &mut self.open[at];
        if order.status == "placed" {
            order.status = "paid";
        } else {
            order.cents = self.rng.random_range(500..20_000);
        }
        event(order)
    }

    fn change_region(&mut self, at: usize) -> String {
        self.drawn.moved += 1;
        let order = &mut self.open[at];
        let others: Vec<&'static str> = REGIONS
            .into_iter()
            .filter(|region| *region != order.region)
            .collect();
        order.region = others[self.rng.random_range(0..others.len())];
        event(order)
    }
}

fn event(order: &Order) -> String {
    let amount = format!("{}.{:02}", order.cents / 100, order.cents % 100);
    json!({ "order_id": order.id, "region": order.region, "amount": amount, "status": order.status }).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_seed_is_one_stream_of_every_kind_of_event() {
        let draw = |seed| {
            let mut orders = Orders::new(seed);
            let events: Vec<String> = (0..500).map(|_| orders.next_event()).collect();
            (events, orders.drawn)
        };
        let (events, drawn) = draw(7);
        assert_eq!(events, draw(7).0);
        assert_ne!(events, draw(8).0);
        assert_eq!(drawn.total(), 500);
        assert!(
            drawn.placed > 0 && drawn.changed > 0 && drawn.moved > 0 && drawn.cancelled > 0,
            "{drawn:?}"
        );
    }
}
