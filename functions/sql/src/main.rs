//! Functions `refresh` and `control`, the two that run SQL: one program, so that the query engine is built, linked and
//! uploaded once. What an invocation brings says which of them it is for; their roles and queues are their own.

mod function;

use function::Sql;

#[tokio::main]
async fn main() -> Result<(), lambda::Error> {
    lambda::run(Sql::start()).await
}
