//! Statistics of texts.
pub mod count;
