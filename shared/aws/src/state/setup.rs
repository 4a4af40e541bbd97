//! Making the tables, for emulators and tests: on AWS they are part of the stack.

use std::time::Duration;

use aws_sdk_dynamodb::{
    error::{ProvideErrorMetadata, SdkError},
    types::{
        AttributeDefinition, BillingMode, GlobalSecondaryIndex, KeySchemaElement, KeyType,
        Projection, ProjectionType, ScalarAttributeType, TableStatus, TimeToLiveSpecification,
    },
};
use ports::{Error, Kind, Result, error::chain};

use super::{
    DynamoState,
    catalog::{IDENTIFIER, INDEX, NAMESPACE},
    keys::{PARTITION, SORT},
};

/// The attribute that holds when an item may be removed.
const TIME_TO_LIVE: &str = "ttl";
/// How long to wait for a table between looks, and how often.
const LOOK: Duration = Duration::from_millis(500);
const LOOKS: u32 = 120;

const CREATE: &str = "create table";

impl DynamoState {
    /// Creates the tables that do not exist yet, and waits until they can be used.
    ///
    /// # Errors
    /// `Unavailable` when DynamoDB does not answer, refuses, or takes more than a minute.
    pub async fn create_tables(&self) -> Result<()> {
        if self.create(&self.table, [PARTITION, SORT], None).await? {
            let spec = TimeToLiveSpecification::builder()
                .attribute_name(TIME_TO_LIVE)
                .enabled(true)
                .build()
                .expect("name and switch are set");
            self.client
                .update_time_to_live()
                .table_name(&*self.table)
                .time_to_live_specification(spec)
                .send()
                .await
                .map_err(|error| failed(&self.table, &error))?;
        }
        if let Some(catalog) = &self.catalog {
            let index = GlobalSecondaryIndex::builder()
                .index_name(INDEX)
                .set_key_schema(Some(key([NAMESPACE, IDENTIFIER])))
                .projection(
                    Projection::builder()
                        .projection_type(ProjectionType::KeysOnly)
                        .build(),
                )
                .build()
                .expect("name, key and projection are set");
            self.create(&catalog.table, [IDENTIFIER, NAMESPACE], Some(index))
                .await?;
        }
        Ok(())
    }

    /// Creates one table; says whether it is new.
    async fn create(
        &self,
        table: &str,
        names: [&str; 2],
        index: Option<GlobalSecondaryIndex>,
    ) -> Result<bool> {
        let definitions = names.map(|name| {
            AttributeDefinition::builder()
                .attribute_name(name)
                .attribute_type(ScalarAttributeType::S)
                .build()
                .expect("name and type are set")
        });
        let created = self
            .client
            .create_table()
            .table_name(table)
            .set_attribute_definitions(Some(definitions.into()))
            .set_key_schema(Some(key(names)))
            .set_global_secondary_indexes(index.map(|index| vec![index]))
            .billing_mode(BillingMode::PayPerRequest)
            .send()
            .await;
        let new = match created {
            Ok(_) => true,
            Err(error) if error.code() == Some("ResourceInUseException") => false,
            Err(error) => return Err(failed(table, &error)),
        };
        self.wait(table).await?;
        Ok(new)
    }

    async fn wait(&self, table: &str) -> Result<()> {
        for _ in 0..LOOKS {
            let seen = self.client.describe_table().table_name(table).send().await;
            let seen = seen.map_err(|error| failed(table, &error))?;
            let status = seen.table.and_then(|table| table.table_status);
            if status == Some(TableStatus::Active) {
                return Ok(());
            }
            self.clock.sleep_until(self.clock.now() + LOOK).await;
        }
        Err(Error::new(Kind::Unavailable, CREATE, table).because("it does not become active"))
    }
}

fn key([hash, range]: [&str; 2]) -> Vec<KeySchemaElement> {
    [(hash, KeyType::Hash), (range, KeyType::Range)]
        .map(|(name, kind)| {
            KeySchemaElement::builder()
                .attribute_name(name)
                .key_type(kind)
                .build()
                .expect("name and kind are set")
        })
        .into()
}

fn failed<E>(table: &str, error: &SdkError<E>) -> Error
where
    E: std::error::Error + 'static,
{
    Error::new(Kind::Unavailable, CREATE, table).because(chain(error))
}
