//! The collaborators every use case is given.

use std::sync::Arc;

use domain::{LiveSettings, Project};
use ports::{
    Alerts, Chance, Clock, Entries, Jobs, Landing, Query, Queue, State, Tables, search::Searching,
};

/// The ports, and the project they serve. Cheap to clone.
#[derive(Clone, Debug)]
pub struct World {
    /// Versioned items.
    pub state: Arc<dyn State>,
    /// Landing tables.
    pub landing: Arc<dyn Landing>,
    /// Reads and staged writes.
    pub tables: Arc<dyn Tables>,
    /// Data of materialized entries.
    pub entries: Arc<dyn Entries>,
    /// Indexes of entries, and vectors of text.
    pub searching: Searching,
    /// Where what entries need is done by another process; none when this one does it behind its answers.
    pub jobs: Option<Arc<dyn Jobs>>,
    /// SQL.
    pub query: Arc<dyn Query>,
    /// Announcements.
    pub queue: Arc<dyn Queue>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Randomness and ids.
    pub chance: Arc<dyn Chance>,
    /// Alerts.
    pub alerts: Arc<dyn Alerts>,
    /// The models.
    pub project: Arc<Project>,
    /// The runner's settings.
    pub live: Arc<LiveSettings>,
}
