#include "json_objects.h"

#include <fmt/format.h>

#include <cmath>
#include <string>

namespace subbyte::python {

namespace nb = nanobind;
using json::Value;

namespace {

std::string text_of(nb::handle object) {
  Py_ssize_t size = 0;
  const char* const bytes = PyUnicode_AsUTF8AndSize(object.ptr(), &size);
  if (bytes == nullptr) nb::raise_python_error();
  return {bytes, static_cast<std::size_t>(size)};
}

nb::str str_of(std::string_view text) {
  // Texts of files may have bytes that are no UTF-8; an object has U+FFFD there.
  PyObject* const object =
      PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "replace");
  if (object == nullptr) nb::raise_python_error();
  return nb::steal<nb::str>(object);
}

Error wrong_type(std::string_view where, std::string_view expected, nb::handle found) {
  return {"json.type", fmt::format("{}: expected {}, found an object of type {}", where, expected,
                                   text_of(nb::handle(found.type()).attr("__name__")))};
}

Result<Value> number_of(nb::handle object, std::string_view where) {
  if (PyFloat_Check(object.ptr())) {
    const double number = PyFloat_AsDouble(object.ptr());
    if (std::isfinite(number)) return Value(number);
    return Error{"json.type", fmt::format("{}: expected a finite number, found {}", where, number)};
  }
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
  return Error{"json.type", fmt::format("{}: expected an integer of 64 bits", where)};
}

Result<Value> convert(nb::handle object, std::string_view where, int depth) {
  if (depth > json::kMaxDepth) {
    return Error{"json.depth",
                 fmt::format("{}: expected at most {} levels", where, json::kMaxDepth)};
  }
  if (object.is_none()) return Value();
  if (PyBool_Check(object.ptr())) return Value(object.ptr() == Py_True);
  if (PyUnicode_Check(object.ptr())) return Value(text_of(object));
  if (PyLong_Check(object.ptr()) || PyFloat_Check(object.ptr())) return number_of(object, where);
  if (PyDict_Check(object.ptr())) {
    Value result = Value::object();
    for (const auto& [key, item] : nb::borrow<nb::dict>(object)) {
      if (!PyUnicode_Check(key.ptr())) return wrong_type(where, "texts as keys", key);
      SUBBYTE_TRY(result[text_of(key)], convert(item, where, depth + 1));
    }
    return result;
  }
  if (PyList_Check(object.ptr()) || PyTuple_Check(object.ptr())) {
    Value result = Value::array();
    for (const nb::handle item : object) {
      SUBBYTE_TRY(Value element, convert(item, where, depth + 1));
      result.push_back(std::move(element));
    }
    return result;
  }
  return wrong_type(where, "what JSON has", object);
}

}  // namespace

Result<Value> to_json(nb::handle object, std::string_view where) {
  return convert(object, where, 0);
}

nb::object to_object(const Value& value) {
  switch (value.type()) {
    case Value::value_t::boolean:
      return nb::bool_(value.get<bool>());
    case Value::value_t::string:
      return str_of(value.get_ref<const std::string&>());
    case Value::value_t::number_integer:
      return nb::int_(value.get<int64_t>());
    case Value::value_t::number_unsigned:
      return nb::int_(value.get<uint64_t>());
    case Value::value_t::number_float:
      return nb::float_(value.get<double>());
    case Value::value_t::array: {
      nb::list list;
      for (const Value& element : value) list.append(to_object(element));
      return list;
    }
    case Value::value_t::object: {
      nb::dict dict;
      for (const auto& [key, element] : value.items()) dict[str_of(key)] = to_object(element);
      return dict;
    }
    default:
      return nb::none();
  }
}

}  // namespace subbyte::python
