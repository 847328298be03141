//! The plain values inside Ignition objects: text, numbers, switches, and lists of anything.

use crate::{
    canonical,
    json::{Node, Value},
    object::{Decoder, Field},
    report::Step,
    spec::Spec,
};

impl Field for String {
    fn is_empty(&self) -> bool {
        self.as_str().is_empty()
    }

    fn encode(&self, _: Spec, out: &mut Vec<u8>) {
        canonical::write_string(self, out);
    }

    fn decode(&mut self, node: Node<'_>, decoder: &mut Decoder) {
        match node.value {
            Value::String(text) => *self = text.into_owned(),
            Value::Null => {}
            other => decoder.mismatch("string", &other),
        }
    }

    fn merge(&mut self, child: Self) {
        *self = child;
    }
}

impl Field for i64 {
    fn is_empty(&self) -> bool {
        *self == 0
    }

    fn encode(&self, _: Spec, out: &mut Vec<u8>) {
        out.extend_from_slice(self.to_string().as_bytes());
    }

    fn decode(&mut self, node: Node<'_>, decoder: &mut Decoder) {
        match node.value {
            Value::Number(text) => match text.parse() {
                Ok(number) => *self = number,
                Err(_) => decoder.mismatch("whole number", &Value::Number(text)),
            },
            Value::Null => {}
            other => decoder.mismatch("number", &other),
        }
    }

    fn merge(&mut self, child: Self) {
        *self = child;
    }
}

impl Field for bool {
    fn is_empty(&self) -> bool {
        !*self
    }

    fn encode(&self, _: Spec, out: &mut Vec<u8>) {
        out.extend_from_slice(if *self { b"true" } else { b"false" });
    }

    fn decode(&mut self, node: Node<'_>, decoder: &mut Decoder) {
        match node.value {
            Value::Bool(switch) => *self = switch,
            Value::Null => {}
            other => decoder.mismatch("bool", &other),
        }
    }

    fn merge(&mut self, child: Self) {
        *self = child;
    }
}

impl<T: Field> Field for Option<T> {
    fn is_empty(&self) -> bool {
        self.is_none()
    }

    fn encode(&self, spec: Spec, out: &mut Vec<u8>) {
        match self {
            Some(value) => value.encode(spec, out),
            // Only members that older versions require come here; those had no optional type.
            None => T::default().encode(spec, out),
        }
    }

    fn decode(&mut self, node: Node<'_>, decoder: &mut Decoder) {
        if matches!(node.value, Value::Null) {
            *self = None;
        } else {
            self.get_or_insert_default().decode(node, decoder);
        }
    }

    fn merge(&mut self, child: Self) {
        if child.is_some() {
            *self = child;
        }
    }
}

impl<T: crate::merge::Item> Field for Vec<T> {
    fn is_empty(&self) -> bool {
        self.as_slice().is_empty()
    }

    fn encode(&self, spec: Spec, out: &mut Vec<u8>) {
        out.push(b'[');
        for (index, item) in self.iter().enumerate() {
            if index > 0 {
                out.push(b',');
            }
            item.encode(spec, out);
        }
        out.push(b']');
    }

    fn decode(&mut self, node: Node<'_>, decoder: &mut Decoder) {
        let nodes = match node.value {
            Value::Array(nodes) => nodes,
            Value::Null => return self.clear(),
            other => return decoder.mismatch("list", &other),
        };
        // Compat: a list that comes twice is decoded item by item on top of the first one.
        self.resize_with(nodes.len(), T::default);
        for (index, (item, node)) in self.iter_mut().zip(nodes).enumerate() {
            decoder.at(Step::Index(index), |decoder| item.decode(node, decoder));
        }
    }

    fn merge(&mut self, child: Self) {
        crate::merge::lists(self, child);
    }

    fn append(&mut self, child: Self) {
        self.extend(child);
    }
}
