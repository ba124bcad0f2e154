# frozen_string_literal: true

module Servers
  # A relay before another server on the loopback, in a process of its own, that hands on every byte of a client
  # +delay+ seconds after it came; answers pass at once. A request so takes at least +delay+, however many run at once.
  class DelayRelay < Server
    # @param target_port [Integer] where the server listens
    # @param delay [Float] seconds
    # @param scheme [String] of #url
    def initialize(target_port:, delay:, scheme: "tcp")
      super()
      @target_port = target_port
      @delay = delay
      @scheme = scheme
    end

    attr_reader :target_port, :delay

    private

    attr_reader :scheme

    def command
      program = File.expand_path("delay_relay_program.rb", __dir__)
      [RbConfig.ruby, "--disable=gems", program, port.to_s, target_port.to_s, delay.to_s]
    end

    # Bundler's settings for this process are none of the relay's.
    def environment = {"RUBYOPT" => nil, "RUBYLIB" => nil}

    def ready? = log.include?("listening on")
  end
end
