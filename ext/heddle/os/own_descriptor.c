#include "os/own_descriptor.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

struct own_descriptor own_descriptor(int number)
{
    struct stat status;
    if (number < 0 || fstat(number, &status) != 0) return (struct own_descriptor){.number = -1};
    return (struct own_descriptor){number, status.st_dev, status.st_ino};
}

bool own_descriptor_valid(const struct own_descriptor *own)
{
    struct stat status;
    return own->number >= 0 && fstat(own->number, &status) == 0 && status.st_dev == own->device &&
           status.st_ino == own->file;
}

int own_descriptor_close(struct own_descriptor *own)
{
    int error = own_descriptor_valid(own) ? 0 : EBADF;
    if (!error && close(own->number) < 0 && errno != EINTR) error = errno;
    own->number = -1;
    return error;
}
