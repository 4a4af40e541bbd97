//! The catalog one statement sees: the tables it names, nothing else.

use std::{collections::BTreeMap, sync::Arc};

use async_trait::async_trait;
use datafusion::{
    catalog::{CatalogProvider, CatalogProviderList, SchemaProvider, TableProvider},
    common::{DataFusionError, Result},
};
use domain::TableName;

/// Tables by name.
pub(crate) type Providers = BTreeMap<TableName, Arc<dyn TableProvider>>;

/// The name of the one catalog; the planner puts it before `schema.name`.
pub(crate) const CATALOG: &str = "lake";

/// The schema of names that are written without one.
pub(crate) const SCHEMA: &str = "main";

/// Tables as a catalog, and the list that holds just it.
#[derive(Clone, Debug)]
pub(crate) struct Named(pub(crate) Arc<Providers>);

impl CatalogProviderList for Named {
    fn register_catalog(
        &self,
        _: String,
        _: Arc<dyn CatalogProvider>,
    ) -> Option<Arc<dyn CatalogProvider>> {
        None
    }

    fn catalog_names(&self) -> Vec<String> {
        vec![CATALOG.to_owned()]
    }

    fn catalog(&self, name: &str) -> Option<Arc<dyn CatalogProvider>> {
        (name == CATALOG).then(|| Arc::new(self.clone()) as Arc<dyn CatalogProvider>)
    }
}

impl CatalogProvider for Named {
    fn schema_names(&self) -> Vec<String> {
        self.0.keys().map(|name| name.schema().to_owned()).collect()
    }

    fn schema(&self, name: &str) -> Option<Arc<dyn SchemaProvider>> {
        Some(Arc::new(Schema {
            name: name.to_owned(),
            tables: Arc::clone(&self.0),
        }))
    }
}

#[derive(Debug)]
struct Schema {
    name: String,
    tables: Arc<Providers>,
}

impl Schema {
    fn find(&self, name: &str) -> Option<&Arc<dyn TableProvider>> {
        self.tables.get(&TableName::new(&self.name, name).ok()?)
    }
}

#[async_trait]
impl SchemaProvider for Schema {
    fn table_names(&self) -> Vec<String> {
        let ours = self.tables.keys().filter(|name| name.schema() == self.name);
        ours.map(|name| name.name().to_owned()).collect()
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>, DataFusionError> {
        Ok(self.find(name).cloned())
    }

    fn table_exist(&self, name: &str) -> bool {
        self.find(name).is_some()
    }
}
