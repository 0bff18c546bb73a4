#include "cases.h"

#define COUNT(rows) (int)(sizeof(rows) / sizeof *(rows))

const weight_case weight_cases[] = {
#define PALETTE(bits, rows, cols, group)                                                                     \
    { "palette" #bits, KERN_F16, bits, rows, cols, group, 0, 0, 0, 0, 0 }
    PALETTE(6, 64, 1024, 32),
    PALETTE(6, 33, 192, 0),
    PALETTE(6, 7, 76, 1),
    PALETTE(6, 5, 44, 0),
    PALETTE(1, 9, 136, 3),
    PALETTE(1, 8, 512, 4),
    PALETTE(2, 9, 72, 0),
    PALETTE(2, 4, 320, 2),
    PALETTE(3, 16, 200, 8),
    PALETTE(3, 6, 640, 0),
    PALETTE(4, 40, 896, 8),
    PALETTE(4, 3, 66, 0),
    PALETTE(8, 12, 300, 4),
    PALETTE(8, 8, 1024, 0),
    PALETTE(5, 6, 136, 2),
    PALETTE(7, 5, 200, 0),
    PALETTE(6, 4, 63, 0),
    PALETTE(3, 5, 77, 0),
    {"palette6 by column", KERN_F16, 6, 8, 128, 0, 32, 0, 0, 0, 0},
    {"palette4 fp32", KERN_F32, 4, 6, 96, 2, 0, 0, 0, 0, 0},
    {"fp32", KERN_F32, 0, 17, 83, 0, 0, 0, 0, 0, 0},
    {"fp32", KERN_F32, 0, 4, 256, 0, 0, 0, 0, 0, 0},
    {"fp16", KERN_F16, 0, 19, 1000, 0, 0, 0, 0, 0, 0},
    {"fp16", KERN_F16, 0, 3, 31, 0, 0, 0, 0, 0, 0},
    {"fp16", KERN_F16, 0, 64, 2048, 0, 0, 0, 0, 0, 0},
    {"fp16", KERN_F16, 0, 5, 328, 0, 0, 0, 0, 0, 0},
    {"int8 by row", KERN_I8, 0, 6, 448, 1, 0, true, 0, KERN_F16, 0},
    {"int8 by row", KERN_I8, 0, 35, 1024, 1, 0, true, 0, KERN_F16, 0},
    {"int8 by row", KERN_I8, 0, 18, 75, 1, 0, true, 0, KERN_F32, 0},
    {"int8 by row", KERN_I8, 0, 2, 3, 1, 0, true, 0, KERN_F16, 0},
    {"int8 by block", KERN_I8, 0, 35, 1024, 1, 32, true, 0, KERN_F16, 0},
    {"int8 by block", KERN_I8, 0, 6, 864, 1, 32, true, 0, KERN_F16, 0},
    {"int8 by block", KERN_I8, 0, 4, 96, 1, 32, true, 0, KERN_F16, 0},
    {"int4 by block", KERN_I4, 0, 33, 1024, 1, 32, true, 0, KERN_F16, 0},
    {"int4 by block", KERN_I4, 0, 6, 736, 1, 32, true, 0, KERN_F16, 0},
    {"int4 by block", KERN_I4, 0, 5, 96, 1, 32, true, 0, KERN_F16, 0},
    {"int4 by block of 64", KERN_I4, 0, 5, 128, 1, 64, true, 0, KERN_F16, 0},
    {"uint8 with offset", KERN_U8, 0, 6, 90, 1, 0, true, true, KERN_F16, KERN_U8},
    {"uint4 with offset", KERN_U4, 0, 6, 96, 2, 16, true, true, KERN_F32, KERN_U4},
    {"int8 for all", KERN_I8, 0, 6, 64, 0, 0, true, 0, KERN_F32, 0},
};
const int n_weight_cases = COUNT(weight_cases);

const attention_case attention_cases[] = {
    {8, 2, 1, 256, 256, 600, 599, 'h', false, true, true},
    {16, 8, 1, 128, 128, 1024, 700, 'h', false, false, true},
    {14, 2, 1, 64, 64, 300, 255, 'h', false, false, false},
    {16, 8, 1, 128, 128, 256, 0, 'h', false, false, true},
    {4, 4, 3, 40, 24, 530, 300, 'p', false, true, false},
    {3, 1, 5, 33, 17, 70, 10, 'f', false, false, true},
    {6, 2, 1, 64, 64, 520, 0, 'h', true, false, true},
    {4, 2, 7, 36, 20, 300, 0, 'p', true, false, false},
    {16, 8, 20, 128, 128, 300, 100, 'h', false, false, true},
    {8, 2, 9, 64, 64, 64, 0, 'h', false, true, true},
    {4, 2, 70, 36, 20, 200, 37, 'p', false, false, false},
    {3, 1, 33, 40, 24, 90, 0, 'f', true, false, true},
    {4, 1, 64, 256, 256, 512, 300, 'h', false, true, true},
    {4, 1, 1, 72, 36, 300, 290, 'h', false, true, true},
    {4, 4, 3, 36, 24, 280, 270, 'p', false, true, false},
    {2, 1, 12, 40, 44, 80, 60, 'h', true, false, true},
};
const int n_attention_cases = COUNT(attention_cases);

const delta_case delta_cases[] = {
    {4, 1, 128, 128, 1, 'p', false, true, true, true, false},
    {4, 2, 128, 128, 1, 'h', false, true, true, true, true},
    {2, 2, 128, 128, 70, 'p', false, true, true, true, false},
    {2, 1, 128, 128, 5, 'f', false, true, false, false, false},
    {2, 1, 16, 24, 3, 'h', false, false, false, false, true},
    {3, 1, 16, 16, 40, 'f', true, true, true, false, false},
    {4, 2, 20, 33, 33, 'p', true, true, true, true, false},
    {2, 1, 64, 256, 9, 'h', false, true, true, true, false},
    {2, 2, 32, 48, 100, 'f', false, true, true, true, false},
    {2, 1, 64, 80, 17, 'h', false, false, false, false, true},
    {1, 1, 256, 32, 192, 'p', false, true, false, false, false},
    {4, 1, 128, 128, 1, 'h', true, false, false, false, true},
    {8, 1, 32, 32, 1, 'h', false, false, false, false, true},
    {2, 1, 32, 48, 3, 'p', false, true, false, false, false},
    {2, 2, 16, 96, 2, 'f', false, true, true, true, false},
};
const int n_delta_cases = COUNT(delta_cases);
