// Many files in one call: POST /v1/files/upload and /v1/files/download.
#pragma once

#include "guest/file_content.h"
#include "guest/json.h"

namespace caisson::guest {

// Takes the body as records, and replies when all of it is here and in its places.
void UploadFiles(const FileContentContext& context, Connection& connection);
// Streams the files of `fields` as records.
void DownloadFiles(const FileContentContext& context, Connection& connection, Fields& fields);

}  // namespace caisson::guest
