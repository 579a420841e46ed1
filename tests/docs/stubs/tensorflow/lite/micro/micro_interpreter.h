// Declarations with the names and signatures of TensorFlow Lite for Microcontrollers that the pages use, to compile
// their C++ without its sources.
#pragma once
#include <cstddef>
#include <cstdint>

enum TfLiteStatus { kTfLiteOk = 0, kTfLiteError = 1 };

struct TfLiteTensor {
  union {
    float* f;
    int8_t* int8;
  } data;
};

namespace tflite {
struct Model;
class MicroOpResolver {};

class MicroInterpreter {
 public:
  MicroInterpreter(const Model* model, const MicroOpResolver& op_resolver, uint8_t* tensor_arena,
                   size_t tensor_arena_size);
  TfLiteStatus AllocateTensors();
  TfLiteStatus Invoke();
  TfLiteTensor* input(size_t index);
  TfLiteTensor* output(size_t index);
  size_t arena_used_bytes() const;
};
}  // namespace tflite
