#include "json_objects.h"

#include <fmt/format.h>

#include <cmath>
#include <string>
#include <utility>

#include "errors.h"
#include "json/strict_json.h"

namespace subbyte::python {

namespace nb = nanobind;
using json::Value;

namespace {

/// Where a value stands: "request: stop[3]".
struct Place {
  std::string_view name;  // of the whole, or of a member
  const Place* parent = nullptr;
  std::size_t index = 0;  // of an element, which has no name

  std::string text() const {
    if (parent == nullptr) return std::string(name);
    const std::string before = parent->text();
    if (name.empty()) return fmt::format("{}[{}]", before, index);
    return before + (parent->parent == nullptr ? ": " : ".") + std::string(name);
  }
};

Error wrong(const Place& place, std::string_view expected, std::string_view found) {
  return {"json.type", fmt::format("{}: expected {}, found {}", place.text(), expected, found)};
}

Error wrong_type(const Place& place, std::string_view expected, nb::handle found) {
  return wrong(place, expected, "an object of type " + name_of_type(found));
}

/// The text of a str.
Result<std::string> text_of(nb::handle object, const Place& place) {
  Py_ssize_t size = 0;
  const char* const bytes = PyUnicode_AsUTF8AndSize(object.ptr(), &size);
  if (bytes != nullptr) return std::string(bytes, static_cast<std::size_t>(size));
  PyErr_Clear();
  return wrong(place, "a text that is Unicode", "one with half of a surrogate pair");
}

nb::str str_of(std::string_view text) {
  // Texts of files may have bytes that are no UTF-8; an object has U+FFFD there.
  PyObject* const object =
      PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "replace");
  if (object == nullptr) nb::raise_python_error();
  return nb::steal<nb::str>(object);
}

Result<Value> float_of(nb::handle object, const Place& place) {
  const double number = PyFloat_AsDouble(object.ptr());
  if (PyErr_Occurred() != nullptr) nb::raise_python_error();
  if (std::isfinite(number)) return Value(number);
  return wrong(place, "a finite number", fmt::format("{}", number));
}

Result<Value> integer_of(nb::handle object, const Place& place) {
  int overflow = 0;
  const long long number = PyLong_AsLongLongAndOverflow(object.ptr(), &overflow);
  // As a parser has them: what is not negative has no sign.
  if (overflow == 0 && number >= 0) return Value(static_cast<uint64_t>(number));
  if (overflow == 0) return Value(static_cast<int64_t>(number));
  if (overflow > 0) {
    const unsigned long long large = PyLong_AsUnsignedLongLong(object.ptr());
    if (PyErr_Occurred() == nullptr) return Value(static_cast<uint64_t>(large));
    PyErr_Clear();
  }
  // As a parser has what 64 bits do not hold: by its digits.
  const nb::object digits = nb::steal(PyNumber_ToBase(object.ptr(), 10));
  if (digits.is_valid()) {
    auto parsed = json::parse(nb::cast<std::string>(digits), "number");
    if (parsed.ok()) return parsed;
  }
  PyErr_Clear();
  return wrong(place, "a number of at most 308 digits", "a larger one");
}

/// What Python's protocols call a number: an int is what has __index__, a float what has __float__.
Result<Value> number_of(nb::handle object, const Place& place) {
  if (PyFloat_Check(object.ptr())) return float_of(object, place);
  if (PyLong_Check(object.ptr())) return integer_of(object, place);
  const std::string type = name_of_type(object);
  if (type == "bool_" || type == "bool") {  // of numpy, whose __float__ says 1.0
    return Value(PyObject_IsTrue(object.ptr()) == 1);
  }
  if (PyIndex_Check(object.ptr()) != 0) {
    const nb::object index = nb::steal(PyNumber_Index(object.ptr()));
    if (index.is_valid()) return integer_of(index, place);
    PyErr_Clear();
  }
  if (!nb::hasattr(object, "__float__")) return wrong_type(place, "what JSON has", object);
  const nb::object number = nb::steal(PyNumber_Float(object.ptr()));
  if (!number.is_valid()) nb::raise_python_error();
  return float_of(number, place);
}

bool is_mapping(nb::handle object) {
  if (PyDict_Check(object.ptr())) return true;
  return !PyLong_Check(object.ptr()) && nb::hasattr(object, "keys") && nb::hasattr(object, "items");
}

bool is_list(nb::handle object) {
  if (PyList_Check(object.ptr()) || PyTuple_Check(object.ptr())) return true;
  if (PyLong_Check(object.ptr()) || PyFloat_Check(object.ptr())) return false;
  if (PyBytes_Check(object.ptr()) || PyByteArray_Check(object.ptr())) return false;
  // An array of numpy without dimensions is a number.
  const bool has_size = nb::hasattr(object, "__iter__") && PyObject_Size(object.ptr()) >= 0;
  PyErr_Clear();
  return has_size;
}

Result<Value> convert(nb::handle object, const Place& place, int depth);

Result<Value> convert_object(nb::handle object, const Place& place, int depth) {
  Value result = Value::object();
  const nb::object items = object.attr("items")();
  for (const nb::handle pair : items) {
    const nb::object key = pair[0];
    if (!PyUnicode_Check(key.ptr())) return wrong_type(place, "texts as keys", key);
    SUBBYTE_TRY(std::string name, text_of(key, place));
    const Place within = {name.empty() ? "\"\"" : name, &place};
    SUBBYTE_TRY(result[name], convert(nb::object(pair[1]), within, depth + 1));
  }
  return result;
}

Result<Value> convert_list(nb::handle object, const Place& place, int depth) {
  Value result = Value::array();
  for (const nb::handle item : object) {
    const Place within = {{}, &place, result.size()};
    SUBBYTE_TRY(Value element, convert(item, within, depth + 1));
    result.push_back(std::move(element));
  }
  return result;
}

Result<Value> convert(nb::handle object, const Place& place, int depth) {
  if (depth > json::kMaxDepth) {
    return Error{"json.depth",
                 fmt::format("{}: expected at most {} levels", place.text(), json::kMaxDepth)};
  }
  if (object.is_none()) return Value();
  if (PyBool_Check(object.ptr())) return Value(object.ptr() == Py_True);
  if (PyUnicode_Check(object.ptr())) {
    SUBBYTE_TRY(std::string text, text_of(object, place));
    return Value(std::move(text));
  }
  if (is_mapping(object)) return convert_object(object, place, depth);
  if (is_list(object)) return convert_list(object, place, depth);
  return number_of(object, place);
}

}  // namespace

Result<Value> to_json(nb::handle object, std::string_view where) {
  return convert(object, {where}, 0);
}

nb::object to_object(const Value& value) {
  switch (value.kind()) {
    case Value::Kind::kBoolean:
      return nb::bool_(value.get<bool>());
    case Value::Kind::kString:
      return str_of(value.string());
    case Value::Kind::kInteger:
      return nb::int_(value.get<int64_t>());
    case Value::Kind::kUnsigned:
      return nb::int_(value.get<uint64_t>());
    case Value::Kind::kFloat:
      return nb::float_(value.get<double>());
    case Value::Kind::kLongInteger: {
      PyObject* const integer = PyLong_FromString(value.string().c_str(), nullptr, 10);
      if (integer == nullptr) nb::raise_python_error();
      return nb::steal(integer);
    }
    case Value::Kind::kArray: {
      nb::list list;
      for (const Value& element : value) list.append(to_object(element));
      return list;
    }
    case Value::Kind::kObject: {
      nb::dict dict;
      for (const auto& [key, element] : value.items()) dict[str_of(key)] = to_object(element);
      return dict;
    }
    default:
      return nb::none();
  }
}

}  // namespace subbyte::python
