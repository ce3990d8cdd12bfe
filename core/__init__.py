"""The words every other room uses: Knob, Settings, Row, Stage, Plan, Refusal.
Standard library only; imports no other room, touches nothing outside its arguments.
"""
