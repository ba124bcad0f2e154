# frozen_string_literal: true

require "rbconfig"

# Whether heddle-odbc can be compiled here: it alone needs unixODBC's headers.
module OdbcHeaders
  def self.here?
    return @here if defined?(@here)

    @here = system("echo '#include <sqlext.h>' | #{RbConfig::CONFIG["CC"]} -E - >#{File::NULL} 2>&1")
  end
end
