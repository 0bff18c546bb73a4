# How everything is compiled, by the project and by the kernel tests when they are built for another processor.
set(CMAKE_C_STANDARD 17)
set(CMAKE_C_EXTENSIONS OFF)
set(CMAKE_C_STANDARD_REQUIRED ON)
# IEEE arithmetic as written: the reference evaluator defines the numbers, so no contraction to FMA.
add_compile_options(-Wall -Wextra -Werror -Wshadow -Wvla -Wstrict-prototypes -ffp-contract=off -fno-math-errno)

# Kernels of one instruction set lie in a file of its name, the only one compiled for it; kernels/dispatch.c asks the
# processor. Loops in plain C get -O3. Under sanitizers that takes minutes; pointers are left to AddressSanitizer there.
# Where a debugger finds the variables of unrolled loops takes as long as compiling them: it knows lines only.
set(KERNEL_LEVEL -O3 -fno-var-tracking)
if(MILLET_SANITIZE)
  set(KERNEL_LEVEL -O1 -fno-var-tracking -fno-sanitize=null,alignment,object-size,pointer-overflow)
endif()
set(KERNEL_FLAGS_portable ${KERNEL_LEVEL} -Wno-psabi)
set(OTHER_PROCESSORS "/kernels/(avx|amx|neon)") # sources that are not for this one
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  set(OTHER_PROCESSORS "/kernels/neon")
  set(KERNEL_FLAGS_avx2 ${KERNEL_LEVEL} -Wno-psabi -mavx2 -mfma -mf16c)
  set(KERNEL_FLAGS_avx512 ${KERNEL_FLAGS_avx2} -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512vbmi -mavx512vnni)
  set(KERNEL_FLAGS_avx512bf16 ${KERNEL_FLAGS_avx512} -mavx512bf16)
  set(KERNEL_FLAGS_amx ${KERNEL_FLAGS_avx512bf16} -mamx-tile -mamx-bf16 -mamx-int8)
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
  set(OTHER_PROCESSORS "/kernels/(avx|amx)")
  set(KERNEL_FLAGS_neon ${KERNEL_LEVEL} -Wno-psabi)
  set(KERNEL_FLAGS_neondot ${KERNEL_FLAGS_neon} -march=armv8.2-a+dotprod)
endif()
function(kernel_options)
  foreach(source ${ARGN})
    get_filename_component(name ${source} NAME_WE)
    string(REGEX REPLACE "_.*" "" isa ${name})
    if(DEFINED KERNEL_FLAGS_${isa})
      set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS "${KERNEL_FLAGS_${isa}}")
    endif()
  endforeach()
endfunction()
