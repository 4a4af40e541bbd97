//! What makes vectors of text in a deployment: a service over HTTP, or Amazon Bedrock.

use std::sync::Arc;

use embedded::{HttpEmbedder, HttpPost};
use ports::{Embedder, Error, Kind, Result, search::Searching};
use settings::Embedding;

use crate::{Ground, bedrock::Bedrock};

/// The embedder that the settings name.
///
/// # Errors
/// `Invalid` for one that is not of a deployment.
pub fn embedder(ground: &Ground<'_>) -> Result<Arc<dyn Embedder>> {
    match &ground.settings.embedder {
        Embedding::None => Ok(Searching::default().embedder),
        Embedding::Http { url, model, key } => {
            let key = key.as_ref().map(|key| key.0.clone());
            let (post, clock) = (HttpPost::new(), ground.clock.clone());
            Ok(Arc::new(HttpEmbedder::new(url, model, key, post, clock)))
        }
        Embedding::Bedrock(model) => Ok(Arc::new(Bedrock {
            model: model.clone(),
            signer: ground.signer.clone(),
            exchange: HttpPost::new(),
            clock: ground.clock.clone(),
        })),
        Embedding::Model(_) => Err(Error::new(Kind::Invalid, "open", "embedder.url")
            .because("this function knows no local models")),
    }
}
