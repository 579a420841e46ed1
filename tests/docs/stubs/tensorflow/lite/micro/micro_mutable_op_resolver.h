#pragma once
#include "tensorflow/lite/micro/micro_interpreter.h"

namespace tflite {
template <unsigned int tOpCount>
class MicroMutableOpResolver : public MicroOpResolver {
 public:
  TfLiteStatus AddConv2D();
  TfLiteStatus AddFullyConnected();
  TfLiteStatus AddMaxPool2D();
  TfLiteStatus AddReshape();
  TfLiteStatus AddSoftmax();
};
}  // namespace tflite
