# frozen_string_literal: true

require_relative "web_process"

# A falcon in a process of its own.
class FalconProcess < WebProcess
  # @param arguments [Array<String>] "serve" or "host" with their options
  # @param preload [String, nil] the library that RUBYOPT loads
  def initialize(*arguments, preload: nil, environment: {}, **options)
    environment = environment.merge("RUBYOPT" => "-W0 -rbundler/setup -I#{ROOT}/lib #{"-r#{preload}" if preload}",
      "CONSOLE_LEVEL" => "info")
    super([Gem.bin_path("falcon", "falcon"), *arguments], environment: environment, **options)
  end
end
