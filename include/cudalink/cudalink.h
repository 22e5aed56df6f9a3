/* SPDX-License-Identifier: MIT
 *
 * cudalink/cudalink.h - everything. See base.h for the rules that hold for all calls.
 */
#ifndef CUDALINK_CUDALINK_H
#define CUDALINK_CUDALINK_H

#include "cudalink/base.h"
#include "cudalink/channels.h"
#include "cudalink/convert.h"
#include "cudalink/dlpack.h"
#include "cudalink/environment.h"
#include "cudalink/exporter.h"
#include "cudalink/format.h"
#include "cudalink/frame.h"
#include "cudalink/hold.h"
#include "cudalink/importer.h"
#include "cudalink/pool.h"
#include "cudalink/probe.h"
#include "cudalink/stream.h"
#include "cudalink/telemetry.h"

#endif
