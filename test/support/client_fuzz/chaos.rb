# frozen_string_literal: true

module ClientFuzz
  # Disturbs the servers and the memory while clients work. Runs in a thread of its own.
  class Chaos
    PAUSE = 0.05

    def initialize(session)
      @session = session
      @random = Random.new(session.seed + 1)
      @proxies = session.backends.proxies
    end

    def run
      until @session.over?
        sleep(@random.rand * PAUSE * 2)
        public_send(%i[shape shape shape reset reset pass pass pass kill memory].sample(random: @random))
      end
    end

    def shape
      settings = [
        {stall_at: @random.rand(3000)}, {reset_at: @random.rand(3000)}, {close_at: @random.rand(3000)},
        {drip: 0.0005}, {delay: 0.01, jitter: 0.01}, {rate: 100_000},
        {reset_at: @random.rand(500), direction: "requests"}, {stall_at: @random.rand(500), direction: "both"}
      ].sample(random: @random)
      proxy = @proxies.sample(random: @random)
      proxy.shape(**settings)
      sleep(@random.rand * PAUSE * 4)
      proxy.pass
      proxy.reset if @random.rand < 0.5
    end

    def reset = @proxies.sample(random: @random).reset

    def pass = @proxies.each(&:pass)

    # The server ends some connections, or ends itself.
    def kill
      @session.clients.kill_some(@random)
      @session.backends.restart if @session.restarts?
    end

    def memory
      return unless @random.rand < 0.3

      case @random.rand(3)
      when 0
        GC.stress = 1 # young objects only: libpq's options alone would take a minute beside other programs
        sleep(0.003)
        GC.stress = false
      when 1 then GC.respond_to?(:compact) && GC.compact
      else GC.start
      end
    ensure
      GC.stress = false
    end
  end
end
