// Holds the headers that all tests include, compiled once: cmake/SubbyteLayer.cmake.
